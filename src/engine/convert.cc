#include "milepost/engine/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/buffered_file.h"
#include "engine/conversion_identity.h"
#include "engine/convert_plan.h"
#include "engine/resume.h"
#include "milepost/base/error.h"
#include "milepost/storage/staging.h"

namespace milepost {
namespace {

class HashingSink final : public ByteSink {
 public:
  void append(Bytes bytes) override {
    count += static_cast<int64_t>(bytes.size());
    hash.update(bytes);
  }
  int64_t count = 0;
  Sha256 hash;
};

OutputSet plan_output(const std::shared_ptr<const Checkpoint>& source, const Selection& selection,
                      const ConvertOptions& options, const std::string& destination) {
  const std::string name = base_name(destination);
  switch (options.to) {
    case CheckpointFormat::kDcp:
      return plan_dcp_output(source, selection, options, name);
    case CheckpointFormat::kSafetensors:
      return plan_safetensors_output(source, selection, options, name.ends_with(".safetensors") ? name : "");
    case CheckpointFormat::kTorchSave:
      return plan_torch_output(source, selection, name);
    case CheckpointFormat::kMemory:
      break;
  }
  throw ValueError("a conversion writes dcp, safetensors or torch");
}

bool is_single_file(const ConvertOptions& options, const std::string& destination) {
  return options.to == CheckpointFormat::kTorchSave ||
         (options.to == CheckpointFormat::kSafetensors && destination.ends_with(".safetensors"));
}

void check_options(const ConvertOptions& options) {
  if (options.files < 0 || options.files > 10'000)
    throw ValueError("the number of files must lie in 1 to 10000, or be 0 to go by size");
  if (options.shard_size_bytes < 1) throw ValueError("the shard size must be positive");
  if (options.max_memory_bytes < int64_t{16} << 20) throw ValueError("at least 16 MiB of memory are needed");
  if (options.dtype &&
      (dtype_info(*options.dtype).kind != DTypeKind::kFloat || dtype_size(*options.dtype) == 1)) {
    throw ValueError(fmt::format("{} is not a dtype that a conversion casts to", dtype_name(*options.dtype)),
                     "choose float32, bfloat16 or float16");
  }
}

// An output inside its own source would change the source.
void require_apart(const Checkpoint& source, const std::string& destination) {
  if (source.format() == CheckpointFormat::kMemory) return;
  const std::string path = resolve_location(source.path()).path;
  if (lies_within(path, destination) || !lies_within(destination, path)) return;
  ValueError error("the destination lies inside the source", "choose a place beside it");
  error.set_path(destination);
  throw error;
}

void require_space(const ConvertReport& report, const std::string& path) {
  if (report.disk_bytes_needed <= report.disk_bytes_free) return;
  StorageError error(ErrorCode::kNoSpace,
                     fmt::format("{} bytes are needed, but only {} are free", report.disk_bytes_needed,
                                 report.disk_bytes_free),
                     path);
  error.set_hint("free some space or choose another disk");
  throw error;
}

// Adds the files' hashes to `hashes`, unless that is null.
void write_small_files(Storage& storage, const std::string& folder, const OutputSet& output, bool sync,
                       manifest::Hashes* hashes = nullptr) {
  for (const OutputSet::SmallFile& small : output.small_files) {
    Sha256 hash;
    BufferedFile file(storage, join_path(folder, small.name), hashes == nullptr ? nullptr : &hash);
    small.write(file);
    file.finish(sync);
    if (hashes != nullptr) hashes->emplace_back(small.name, to_hex(hash.finish()));
  }
}

void write_output(Storage& storage, const std::string& staging, bool single_file, const OutputSet& output,
                  const WriteOptions& write, Journal& journal) {
  std::vector<std::string> paths;
  paths.reserve(output.files.size());
  for (const OutputFile& file : output.files) {
    paths.push_back(single_file ? staging : join_path(staging, file.image->name()));
  }
  write_images(storage, paths, output.files, write, &journal);
  write_small_files(storage, staging, output, write.sync);
}

WriteOptions write_options(const ConvertOptions& options) {
  WriteOptions write;
  write.num_threads = options.num_threads;
  write.max_memory_bytes = options.max_memory_bytes;
  write.sync = options.sync;
  write.progress = options.progress;
  return write;
}

// What is known before anything is written, but for the small files.
ConvertReport describe(const Checkpoint& source, const Selection& selection, const OutputSet& output) {
  ConvertReport report;
  report.skipped = selection.skipped;
  report.warnings = source.warnings();
  report.warnings.insert(report.warnings.end(), selection.warnings.begin(), selection.warnings.end());
  report.tensors = selection.num_tensors;
  report.objects = selection.num_objects;
  report.casts = selection.num_casts;
  report.bytes_in = selection.bytes_in;
  for (const OutputFile& file : output.files) {
    report.files.push_back({file.image->name(), file.image->size()});
    report.bytes_out += file.image->size();
  }
  return report;
}

void write_staged(const StorageLocation& location, bool single_file, const OutputSet& output,
                  const ConvertOptions& options, const WriteOptions& write, const Journal::Policy& policy,
                  const ConversionIdentity& identity, ConvertReport* report) {
  Storage& storage = *location.storage;
  StagedOutput staged(location.storage, location.path,
                      single_file ? StagedOutput::Kind::kFile : StagedOutput::Kind::kDirectory,
                      options.overwrite,
                      options.resume ? StagedOutput::Leftovers::kKeep : StagedOutput::Leftovers::kRemove);
  Journal journal(storage, staged.journal_path(), identity, policy);
  if (options.resume) {
    const int64_t held = take_up(storage, staged, single_file, output, location.path, journal, report);
    report->disk_bytes_needed -= std::min(report->disk_bytes_needed, held);
  }
  report->disk_bytes_free = storage.free_bytes(parent_path(location.path));  // without what a dead run left
  require_space(*report, location.path);
  try {
    write_output(storage, staged.path(), single_file, output, write, journal);
  } catch (Error& error) {
    keep_or_remove(storage, staged, journal, options.resume, error);
    throw;
  }
  report->bytes_resumed = journal.bytes_kept();
  staged.keep_when_abandoned(journal.is_worth_keeping());
  try {
    staged.commit();
  } catch (Error& error) {
    mention_leftovers(storage, staged, error);
    throw;
  }
}

}  // namespace

ConvertReport convert_part(const std::shared_ptr<const Checkpoint>& source, const StorageLocation& folder,
                           const ConvertOptions& options, ConvertShare share) {
  check_options(options);
  const Selection selection = select_entries(*source, options);
  require_sound(*source, selection);
  OutputSet output = plan_output(source, selection, options, folder.path);
  ConvertReport report = describe(*source, selection, output);
  std::vector<OutputFile> own;
  std::vector<std::string> paths;
  for (int64_t i = share.index; i < static_cast<int64_t>(output.files.size()); i += share.count) {
    own.push_back(std::move(output.files[static_cast<size_t>(i)]));
    report.disk_bytes_needed += own.back().image->size();
    paths.push_back(join_path(folder.path, own.back().image->name()));
  }
  report.disk_bytes_free = folder.storage->free_bytes(folder.path);
  require_space(report, folder.path);
  WriteOptions write = write_options(options);
  write.hash_files = share.hash_files;
  const std::vector<Sha256Digest> digests = write_images(*folder.storage, paths, own, write);
  for (size_t i = 0; i < digests.size(); ++i) {
    report.hashes.emplace_back(own[i].image->name(), to_hex(digests[i]));
  }
  if (share.index == 0) {
    write_small_files(*folder.storage, folder.path, output, options.sync,
                      share.hash_files ? &report.hashes : nullptr);
  }
  return report;
}

ConvertReport convert(const std::shared_ptr<const Checkpoint>& source, std::string_view dst,
                      const ConvertOptions& options) {
  return convert(source, resolve_location(dst), options);
}

ConvertReport convert(const std::shared_ptr<const Checkpoint>& source, const StorageLocation& location,
                      const ConvertOptions& options) {
  return convert_with(source, location, options, {});
}

ConvertReport convert_with(const std::shared_ptr<const Checkpoint>& source, const StorageLocation& location,
                           const ConvertOptions& options, const Journal::Policy& policy) {
  const auto start = std::chrono::steady_clock::now();
  check_options(options);
  require_apart(*source, location.path);
  const bool single_file = is_single_file(options, location.path);
  const Selection selection = select_entries(*source, options);
  require_sound(*source, selection);
  const OutputSet output = plan_output(source, selection, options, location.path);
  const WriteOptions write = write_options(options);
  ConvertReport report = describe(*source, selection, output);
  std::vector<Sha256Digest> small_files;
  for (const OutputSet::SmallFile& small : output.small_files) {
    HashingSink sink;
    small.write(sink);
    report.files.push_back({small.name, sink.count});
    report.bytes_out += sink.count;
    small_files.push_back(sink.hash.finish());
  }
  report.disk_bytes_needed = report.bytes_out;
  report.disk_bytes_free = location.storage->free_bytes(parent_path(location.path));
  report.peak_buffer_bytes = write_buffer_bytes(write);
  if (options.dry_run) return report;

  write_staged(location, single_file, output, options, write, policy,
               identify_conversion(*source, output, options.to, small_files), &report);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace milepost
