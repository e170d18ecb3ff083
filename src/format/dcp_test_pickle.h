// Pickles by hand (protocol 2, no memo), for tests of `.metadata` in shapes that no writer makes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace milepost::dcp::testing {

using Pairs = std::vector<std::pair<std::string, std::string>>;  // pickled keys and values

inline std::string le(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

inline const std::string kNone = "N";
inline std::string text(std::string_view t) { return "X" + le(t.size(), 4) + std::string(t); }
inline std::string integer(int64_t value) { return "\x8a\x08" + le(static_cast<uint64_t>(value), 8); }
inline std::string tuple(const std::vector<std::string>& items) {
  const bool is_short = !items.empty() && items.size() <= 3;
  std::string out = is_short ? "" : "(";
  for (const std::string& item : items) out += item;
  return out + (is_short ? static_cast<char>(0x84 + items.size()) : 't');
}
inline std::string list(const std::vector<std::string>& items) {
  std::string out = "](";
  for (const std::string& item : items) out += item;
  return out + "e";
}
inline std::string dict(const Pairs& pairs) {
  std::string out = "}(";
  for (const auto& [key, value] : pairs) out += key + value;
  return out + "u";
}
inline std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
inline std::string call(const std::string& function, const std::vector<std::string>& arguments) {
  return function + tuple(arguments) + "R";
}
inline std::string instance(const std::string& type, const std::string& state) {
  return type + ")\x81" + state + "b";
}
inline std::string attributes(const std::string& type,
                              const std::vector<std::pair<std::string, std::string>>& pairs) {
  Pairs pickled;
  for (const auto& [name, value] : pairs) pickled.emplace_back(text(name), value);
  return instance(type, dict(pickled));
}
inline std::string pickle(const std::string& root) { return "\x80\x02" + root + "."; }

// ---- the classes of section 2.1 ----

inline std::string metadata_class(std::string_view name) {
  return global("torch.distributed.checkpoint.metadata", name);
}
inline std::string size(const std::vector<int64_t>& dims) {
  std::vector<std::string> items;
  for (int64_t dim : dims) items.push_back(integer(dim));
  return call(global("torch", "Size"), {tuple(items)});
}
inline std::string properties(std::string_view dtype) {
  return instance(metadata_class("TensorProperties"),
                  tuple({global("torch", dtype),
                         call(global("torch.serialization", "_get_layout"), {text("torch.strided")}), "\x89",
                         call(metadata_class("_MEM_FORMAT_ENCODING"), {integer(0)}), "\x89"}));
}
inline std::string chunk(const std::vector<int64_t>& offsets, const std::vector<int64_t>& sizes) {
  return attributes(metadata_class("ChunkStorageMetadata"),
                    {{"offsets", size(offsets)}, {"sizes", size(sizes)}});
}
inline std::string tensor(const std::string& shape, const std::vector<std::string>& chunks,
                          const std::string& tensor_properties = properties("float32")) {
  return attributes(metadata_class("TensorStorageMetadata"),
                    {{"properties", tensor_properties}, {"size", shape}, {"chunks", list(chunks)}});
}
inline std::string object() { return metadata_class("BytesStorageMetadata") + ")\x81"; }
inline std::string index(std::string_view fqn) {
  return attributes(metadata_class("MetadataIndex"), {{"fqn", text(fqn)}, {"index", kNone}});
}
inline std::string index(std::string_view fqn, const std::vector<int64_t>& offset,
                         const std::string& hint = kNone) {
  return attributes(metadata_class("MetadataIndex"),
                    {{"fqn", text(fqn)}, {"index", hint}, {"offset", size(offset)}});
}
inline std::string info(std::string_view path, int64_t offset, int64_t length) {
  return attributes(
      global("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
      {{"relative_path", text(path)}, {"offset", integer(offset)}, {"length", integer(length)}});
}
inline std::string metadata_pickle(const Pairs& entries, const Pairs& storage,
                                   std::vector<std::pair<std::string, std::string>> more = {}) {
  std::vector<std::pair<std::string, std::string>> all = {{"state_dict_metadata", dict(entries)},
                                                          {"storage_data", dict(storage)}};
  all.insert(all.end(), more.begin(), more.end());
  return pickle(attributes(metadata_class("Metadata"), all));
}

}  // namespace milepost::dcp::testing
