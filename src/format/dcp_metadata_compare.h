// Comparison of two Metadata, for tests and fuzzing.
#pragma once

#include <fmt/format.h>

#include <string>

#include "milepost/format/dcp.h"

namespace milepost::dcp {

inline bool same_location(const Catalog& a, const Location& la, const Catalog& b, const Location& lb) {
  if (la.offset != lb.offset || la.length != lb.length || la.layout != lb.layout) return false;
  if (la.file == Location::kNoFile || lb.file == Location::kNoFile) return la.file == lb.file;
  return a.files()[la.file].path == b.files()[lb.file].path;
}

// What differs first between the catalogs, or "". The order of files, and files that nothing uses, do not
// matter.
inline std::string catalog_difference(const Catalog& a, const Catalog& b) {
  if (a.names_in_order() != b.names_in_order()) return "names or their order";
  if (a.num_chunks() != b.num_chunks()) return "number of chunks";
  if (a.tensors().size() != b.tensors().size()) return "number of tensors";
  for (size_t i = 0; i < a.tensors().size(); ++i) {
    const Catalog::Tensor &s = a.tensors()[i], &t = b.tensors()[i];
    if (s.name != t.name || s.dtype != t.dtype || s.shape != t.shape || s.first_chunk != t.first_chunk ||
        s.num_chunks != t.num_chunks) {
      return fmt::format("tensor '{}'", s.name);
    }
    for (int64_t c = s.first_chunk; c < s.first_chunk + s.num_chunks; ++c) {
      if (!(a.chunk_box(s, c) == b.chunk_box(t, c))) return fmt::format("box of chunk {} of '{}'", c, s.name);
      if (!same_location(a, a.chunk_location(c), b, b.chunk_location(c))) {
        return fmt::format("location of chunk {} of '{}'", c, s.name);
      }
    }
  }
  if (a.objects().size() != b.objects().size()) return "number of objects";
  for (size_t i = 0; i < a.objects().size(); ++i) {
    const Catalog::Object &s = a.objects()[i], &t = b.objects()[i];
    if (s.name != t.name || !same_location(a, s.location, b, t.location)) {
      return fmt::format("object '{}'", s.name);
    }
  }
  if (a.has_paths() != b.has_paths()) return "whether there are paths";
  for (std::string_view name : a.names_in_order()) {
    if (a.path(name) != b.path(name)) return fmt::format("path of '{}'", name);
  }
  return "";
}

inline std::string metadata_difference(const Metadata& a, const Metadata& b) {
  if (std::string difference = catalog_difference(a.catalog, b.catalog); !difference.empty())
    return difference;
  if (a.catalog.files().size() != b.catalog.files().size()) return "number of files";
  for (size_t i = 0; i < a.catalog.files().size(); ++i) {
    if (a.catalog.files()[i].path != b.catalog.files()[i].path) return fmt::format("path of file {}", i);
  }
  if (a.version != b.version) return "version";
  if (a.checkpoint_id != b.checkpoint_id) return "checkpoint_id";
  if (a.save_id != b.save_id) return "save_id";
  if (a.writer != b.writer) return "writer";
  if (a.warnings != b.warnings) return "warnings";
  return "";
}

}  // namespace milepost::dcp
