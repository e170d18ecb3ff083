// A safetensors folder is opened thus:
//
// 1. With an index, its weight_map says which files there are and where each tensor lies; every named file
// must exist and hold what it is said to hold. Other *.safetensors files are strays: a warning.
// 2. Without an index, all *.safetensors files directly in the folder count.
// 3. Entries with DCP_SHARDING_INFO are pieces: those of one name make one tensor, whose shape is the largest
// end in every dimension. A name that occurs twice otherwise is an error.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "engine/opened_checkpoint.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/format/safetensors.h"

namespace milepost {
namespace {

struct Piece {
  safetensors::Entry entry;
  uint32_t file;
};

// Tensors by name, in order of first appearance.
class PieceTable {
 public:
  void add(Piece piece, const std::string& path) {
    require_offsets_in_range(piece.entry, path);
    const auto [it, added] = index_.try_emplace(piece.entry.name, pieces_.size());
    if (added) {
      pieces_.push_back({std::move(piece)});
      return;
    }
    std::vector<Piece>& known = pieces_[it->second];
    if (piece.entry.saved_offsets.empty() || known[0].entry.saved_offsets.empty()) {
      FormatError error(ErrorCode::kDuplicate, "the tensor occurs in two files",
                        "remove the file that does not belong here");
      error.set_path(path).set_key(piece.entry.name);
      throw error;
    }
    if (piece.entry.dtype != known[0].entry.dtype ||
        piece.entry.shape.size() != known[0].entry.shape.size()) {
      FormatError error(ErrorCode::kShapeMismatch, "its pieces differ in dtype or number of dimensions");
      error.set_path(path).set_key(piece.entry.name);
      throw error;
    }
    known.push_back(std::move(piece));
  }

  void fill(Catalog& catalog) const {
    for (const std::vector<Piece>& pieces : pieces_) {
      const safetensors::Entry& first = pieces[0].entry;
      catalog.add_tensor(first.name, first.dtype, full_shape(pieces));
      for (const Piece& piece : pieces) {
        const Dims zeros(piece.entry.shape.size(), 0);
        catalog.add_chunk(piece.entry.saved_offsets.empty() ? zeros : piece.entry.saved_offsets,
                          piece.entry.shape,
                          {piece.entry.offset, piece.entry.length, piece.file, Location::kRowMajor});
      }
    }
  }

 private:
  static void require_offsets_in_range(const safetensors::Entry& entry, const std::string& path) {
    for (size_t d = 0; d < entry.saved_offsets.size(); ++d) {
      int64_t end;
      if (checked_add(entry.saved_offsets[d], entry.shape[d], &end)) continue;
      FormatError error(ErrorCode::kTooLarge, "a saved offset is out of range");
      error.set_path(path).set_key(entry.name);
      throw error;
    }
  }

  static Dims full_shape(const std::vector<Piece>& pieces) {
    Dims shape = pieces[0].entry.shape;
    for (const Piece& piece : pieces) {
      for (size_t d = 0; d < piece.entry.saved_offsets.size(); ++d) {
        shape[d] = std::max(shape[d], piece.entry.saved_offsets[d] + piece.entry.shape[d]);
      }
    }
    return shape;
  }

  std::vector<std::vector<Piece>> pieces_;
  std::unordered_map<std::string, size_t> index_;
};

safetensors::Header add_file(OpenedParts& parts, PieceTable& table, const std::string& name,
                             const std::unordered_map<std::string, std::string>* weight_map) {
  const std::string path = join_path(parts.folder, name);
  const std::unique_ptr<ByteSource> file = parts.storage->open_read(path);
  safetensors::Header header = safetensors::read_header(*file);
  for (const std::string& warning : header.warnings) parts.warnings.push_back(name + ": " + warning);
  const uint32_t index = parts.catalog.add_file(name, file->size());
  for (const safetensors::Entry& entry : header.entries) {
    if (weight_map != nullptr) {
      const auto it = weight_map->find(entry.name);
      if (it == weight_map->end()) {
        parts.warnings.push_back(
            fmt::format("{}: tensor '{}' is not in the index and is left out", name, printable(entry.name)));
        continue;
      }
      if (it->second != name) {
        parts.warnings.push_back(fmt::format("{}: tensor '{}' is left out: the index says it is in {}", name,
                                             printable(entry.name), printable(it->second)));
        continue;
      }
    }
    table.add({entry, index}, path);
  }
  return header;
}

void add_details(OpenedParts& parts, const std::map<std::string, std::string>& metadata) {
  for (const auto& [key, value] : metadata) {
    if (key != "DCP_SHARDING_INFO" && parts.details.size() < 16)
      parts.details.emplace_back(key, printable(value));
  }
}

[[noreturn]] void throw_missing_shard(const OpenedParts& parts, const std::string& name,
                                      const safetensors::Index& index) {
  std::string tensors;
  int64_t count = 0;
  for (const auto& [tensor, file] : index.weight_map) {
    if (file != name) continue;
    if (++count <= 10) tensors += (tensors.empty() ? "" : ", ") + printable(tensor, 80);
  }
  if (count > 10) tensors += fmt::format(" and {} more", count - 10);
  FormatError error(ErrorCode::kMissingFile,
                    "the index names this file, but it is missing; it holds " + tensors,
                    "fetch the file again");
  error.set_path(join_path(parts.folder, name));
  throw error;
}

void open_indexed(OpenedParts& parts, PieceTable& table, const std::vector<FileInfo>& listing) {
  const std::string index_path = join_path(parts.folder, safetensors::kIndexName);
  const safetensors::Index index = safetensors::read_index(*parts.storage->open_read(index_path));
  std::vector<std::string> files;
  std::unordered_map<std::string, std::string> weight_map;
  std::unordered_set<std::string> known;
  for (const auto& [tensor, file] : index.weight_map) {
    weight_map.emplace(tensor, file);
    if (known.insert(file).second) files.push_back(file);
  }
  std::sort(files.begin(), files.end());
  std::unordered_set<std::string> present;
  for (const FileInfo& info : listing) {
    if (!info.is_regular) continue;
    present.insert(info.name);
    if (info.name.ends_with(".safetensors") && !known.contains(info.name)) {
      parts.warnings.push_back(info.name + ": the index does not name this file; it is left out");
    }
  }
  for (const std::string& file : files) {
    if (!present.contains(file)) throw_missing_shard(parts, file, index);
  }
  std::unordered_set<std::string> found;
  for (const std::string& file : files) {
    const safetensors::Header header = add_file(parts, table, file, &weight_map);
    for (const safetensors::Entry& entry : header.entries) {
      if (weight_map[entry.name] == file) found.insert(entry.name);
    }
    if (file == files[0]) add_details(parts, header.metadata);
  }
  for (const auto& [tensor, file] : index.weight_map) {
    if (found.contains(tensor)) continue;
    FormatError error(ErrorCode::kMissingKey,
                      "the index says that this file holds the tensor, but it does not",
                      "fetch index and files again, from one release");
    error.set_path(join_path(parts.folder, file)).set_key(tensor);
    throw error;
  }
}

}  // namespace

void open_safetensors_folder(OpenedParts& parts, const std::vector<FileInfo>& listing) {
  parts.format = CheckpointFormat::kSafetensors;
  PieceTable table;
  const bool indexed = std::any_of(listing.begin(), listing.end(), [](const FileInfo& info) {
    return info.is_regular && info.name == safetensors::kIndexName;
  });
  parts.details.emplace_back("index", indexed ? std::string(safetensors::kIndexName) : "none");
  if (indexed) {
    open_indexed(parts, table, listing);
  } else {
    for (const FileInfo& info : listing) {
      if (!info.is_regular || !info.name.ends_with(".safetensors")) continue;
      add_details(parts, add_file(parts, table, info.name, nullptr).metadata);
    }
  }
  table.fill(parts.catalog);
}

void open_safetensors_file(OpenedParts& parts, const std::string& file_name) {
  parts.format = CheckpointFormat::kSafetensors;
  PieceTable table;
  add_details(parts, add_file(parts, table, file_name, nullptr).metadata);
  table.fill(parts.catalog);
}

}  // namespace milepost
