#include <fmt/format.h>

#include "engine/buffered_file.h"
#include "engine/convert_plan.h"
#include "milepost/base/error.h"
#include "milepost/engine/model.h"
#include "milepost/storage/staging.h"

namespace milepost {
namespace {

// The literals of the image (the header, for safetensors) in a file of its size.
void write_literals(Storage& storage, const std::string& path, const FileImage& image) {
  const std::unique_ptr<WritableFile> file = storage.open_write(path, {0, false});
  ByteVector literal;
  for (int64_t i = 0; i < image.num_parts(); ++i) {
    const FileImage::Part part = image.part(i);
    if (part.payload >= 0 || part.length == 0) continue;
    literal.clear();
    image.render(i, {}, literal);
    const Bytes bytes(literal);
    file->write_at(part.offset, {&bytes, 1});
  }
  file->truncate(image.size());
  file->sync();
  file->close();
}

}  // namespace

ConvertReport write_hollow(const std::shared_ptr<const Checkpoint>& source, std::string_view dst,
                           const ConvertOptions& options) {
  const StorageLocation location = resolve_location(dst);
  Storage& storage = *location.storage;
  ConvertOptions as_they_are = options;
  as_they_are.to = CheckpointFormat::kSafetensors;
  as_they_are.dtype.reset();
  const Selection selection = select_entries(*source, as_they_are);
  const OutputSet output = plan_safetensors_output(source, selection, as_they_are, "");
  ConvertReport report;
  report.tensors = selection.num_tensors;
  for (const OutputFile& file : output.files) {
    report.files.push_back({file.image->name(), file.image->size()});
    report.bytes_out += file.image->size();
  }
  report.disk_bytes_free = storage.free_bytes(parent_path(location.path));
  if (options.dry_run) return report;
  StagedOutput staged(location.storage, location.path, StagedOutput::Kind::kDirectory, options.overwrite);
  for (const OutputFile& file : output.files)
    write_literals(storage, join_path(staged.path(), file.image->name()), *file.image);
  for (const OutputSet::SmallFile& small : output.small_files) {
    BufferedFile file(storage, join_path(staged.path(), small.name));
    small.write(file);
    file.finish(options.sync);
  }
  staged.commit();
  return report;
}

}  // namespace milepost
