#include <unordered_map>

#include "engine/opened_checkpoint.h"
#include "milepost/format/dcp.h"

namespace milepost {

void open_dcp(OpenedParts& parts, const std::vector<FileInfo>& listing, const std::string& metadata_name) {
  parts.format = CheckpointFormat::kDcp;
  const std::unique_ptr<ByteSource> file = parts.storage->open_read(join_path(parts.folder, metadata_name));
  dcp::Metadata metadata = dcp::read_metadata(*file);
  parts.catalog = std::move(metadata.catalog);
  parts.warnings = std::move(metadata.warnings);
  if (!metadata.writer.empty()) parts.details.emplace_back("writer", metadata.writer);
  if (!metadata.version.empty()) parts.details.emplace_back("metadata version", metadata.version);
  if (!metadata.checkpoint_id.empty()) parts.details.emplace_back("checkpoint id", metadata.checkpoint_id);
  std::unordered_map<std::string_view, int64_t> sizes;
  for (const FileInfo& info : listing) sizes.emplace(info.name, info.size_bytes);
  for (uint32_t i = 0; i < parts.catalog.files().size(); ++i) {
    const auto it = sizes.find(parts.catalog.files()[i].path);
    if (it != sizes.end()) parts.catalog.set_file_size(i, it->second);
  }
}

}  // namespace milepost
