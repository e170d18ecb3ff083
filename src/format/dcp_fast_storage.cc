// planner_data, storage_data and storage_meta for the fast reader.
#include <algorithm>

#include "format/dcp_fast_reader.h"
#include "format/pickle_text.h"
#include "milepost/base/checked_math.h"

namespace milepost::dcp {

// ---- names of entries ----

// planner_data lists the entries in the same order again, and storage_data each rank's in the order of its
// plan: the next name is mostly the next entry, which saves the hash table's cache misses.
Token FastReader::find_entry(std::string_view name) const {
  const auto next = static_cast<size_t>(last_name_.index()) + 1;
  const bool is_tensor = last_name_.tag() == Tag::kTensor;
  if (is_tensor && next < catalog().tensors().size() && catalog().tensors()[next].name == name) {
    return {Tag::kTensor, static_cast<int64_t>(next)};
  }
  if (!is_tensor && next < catalog().objects().size() && catalog().objects()[next].name == name) {
    return {Tag::kObject, static_cast<int64_t>(next)};
  }
  if (const auto tensor = catalog().find_tensor(name)) return indexed(Tag::kTensor, *tensor);
  if (const auto object = catalog().find_object(name)) return indexed(Tag::kObject, *object);
  return {};
}

// A text that is likely an entry's name: as Tensor or Object, or else as any text.
Token FastReader::entry_name() {
  Token name;
  if (in_.take_get(&name)) {
    if (name.tag() != Tag::kTensor && name.tag() != Tag::kObject) {
      spend(text_of(name).size());
      const Token found = find_entry(text_of(name));
      if (found != Token()) name = found;
    }
  } else {
    const std::string_view text = in_.raw_text();
    name = find_entry(text);
    if (name == Token()) {
      const std::optional<Word> word = find_word(text);
      name = word ? Token(*word) : in_.add_text(text);
    }
    in_.memoize(name);
  }
  if (name.tag() == Tag::kTensor || name.tag() == Tag::kObject) last_name_ = name;
  return name;
}

// ---- planner_data ----

void FastReader::paths() {
  out_.catalog.set_has_paths(true);
  tensor_has_path_.resize(catalog().tensors().size());
  object_has_path_.resize(catalog().objects().size());
  text_dict([&] {
    const Token key = entry_name();
    if (in_.peek() == pickle::kOpEmptyDict || in_.peek() == pickle::kOpNone) {
      pending_ = key;
    } else {
      path(key);
    }
  });
}

void FastReader::path(Token key) {
  const bool is_tensor = key.tag() == Tag::kTensor;
  const bool is_known = is_tensor || key.tag() == Tag::kObject;
  if (is_known) {
    auto has_path = (is_tensor ? tensor_has_path_ : object_has_path_)[static_cast<size_t>(key.index())];
    if (has_path) throw Unusual{};
    has_path = true;
  }
  KeyPath path;
  const bool is_counted = !in_.take_if(pickle::kOpMark);
  while (true) {
    const uint8_t opcode = in_.peek();
    if (opcode == pickle::kOpTuple || (opcode >= pickle::kOpTuple1 && opcode <= pickle::kOpTuple3)) {
      const size_t count = opcode == pickle::kOpTuple ? path.size() : opcode - pickle::kOpTuple1 + 1u;
      if (is_counted == (opcode == pickle::kOpTuple) || count != path.size() || path.empty()) throw Unusual{};
      in_.take();
      break;
    }
    if (in_.at_name()) {
      const std::string_view text = text_of(in_.primary());
      spend(text.size());
      path.emplace_back(std::string(text));
    } else {
      const int64_t position = in_.integer();
      if (position < 0) throw Unusual{};
      path.emplace_back(position);
    }
  }
  in_.memoize();
  if (is_known) {
    out_.catalog.set_path(text_of(key), std::move(path));
  } else {
    // A second path for the same unknown name takes the place of the first in Python, and is one stray, not
    // two.
    if (stray_paths_.count > 0) throw Unusual{};
    stray_paths_.add(text_of(key));
  }
}

// ---- storage_data ----

void FastReader::storage_data() {
  in_.expect(pickle::kOpEmptyDict);
  in_.memoize();
  while (true) {
    if (in_.take_if(pickle::kOpMark)) {
      while (!in_.take_if(pickle::kOpSetItems)) storage_entry(in_.primary());
    } else if (in_.at_name() || in_.peek() == pickle::kOpGlobal) {
      const Token first = in_.primary();
      if (!first.is(Class::kIndex) && first != Token(Word::kMetadataModule)) {
        pending_ = first;
        return;
      }
      storage_entry(first);
      in_.expect(pickle::kOpSetItem);
    } else {
      return;
    }
  }
}

void FastReader::storage_entry(Token first) {
  const int64_t key = storage_key(first);
  const Location location = storage_info();
  if (key == kNowhere) {
    stray_storage_.add(stray_name_);
  } else if (key >= 0) {
    if (catalog().chunk_location(key).file != Location::kNoFile) throw Unusual{};
    out_.catalog.set_chunk_location(key, location);
    ++located_chunks_;
  } else {
    const int64_t object = -1 - key;
    if (catalog().objects()[static_cast<size_t>(object)].location.file != Location::kNoFile) throw Unusual{};
    out_.catalog.set_object_location(object, location);
    ++located_objects_;
  }
}

int64_t FastReader::storage_key(Token first) {
  in_.expect_global(Class::kIndex, first);
  Token name, offset;
  int64_t hint = -1;
  const uint32_t seen = attributes([&](Word word) {
    if (word == Word::kFqn) {
      name = entry_name();
    } else if (word == Word::kIndex) {
      if (!in_.take_if(pickle::kOpNone)) hint = in_.integer();
    } else if (word == Word::kOffset) {
      offset = size(Token(), &offsets_);
    } else {
      throw Unusual{};
    }
  });
  if ((seen & bit(Word::kFqn)) == 0) throw Unusual{};

  const bool has_offset = (seen & bit(Word::kOffset)) != 0;
  if (name.tag() == Tag::kObject && !has_offset) return -1 - name.index();
  if (name.tag() == Tag::kTensor && has_offset) {
    const Catalog::Tensor& tensor = catalog().tensors()[static_cast<size_t>(name.index())];
    const int64_t chunk = offset.index();
    if (offset.tag() == Tag::kOffsets && chunk - tensor.first_chunk >= 0 &&
        chunk - tensor.first_chunk < tensor.num_chunks) {
      return chunk;
    }
    if (offset != Token()) load(offset, &offsets_);
    if (std::ranges::any_of(offsets_.view(), [](int64_t o) { return o < 0; })) throw Unusual{};
    if (offsets_.size == tensor.shape.size()) {
      const int64_t found = lookup_.find(name.index(), offsets_.view(), hint);
      if (found >= 0) return found;
    }
  }
  if (stray_storage_.count == 0) stray_name_ = text_of(name);
  return kNowhere;
}

Location FastReader::storage_info() {
  in_.expect_global(Class::kStorageInfo);
  Location location;
  location.layout = Location::kTorchItem;
  const uint32_t seen = attributes([&](Word word) {
    if (word == Word::kRelativePath) {
      location.file = file();
    } else if (word == Word::kOffset) {
      location.offset = in_.integer();
    } else if (word == Word::kLength) {
      location.length = in_.integer();
    } else if (word == Word::kTransformDescriptors) {
      in_.expect(pickle::kOpNone);
    } else {
      throw Unusual{};
    }
  });
  const uint32_t needed = bit(Word::kRelativePath) | bit(Word::kOffset) | bit(Word::kLength);
  int64_t end;
  if ((seen & needed) != needed || location.offset < 0 || location.length < 0 ||
      !checked_add(location.offset, location.length, &end)) {
    throw Unusual{};
  }
  return location;
}

// A rank's entries share a file; where entries go by tensor, the next rank's file is next.
uint32_t FastReader::file() {
  const auto add = [&](std::string_view path) {
    const std::vector<Catalog::File>& files = catalog().files();
    for (uint32_t likely : {last_file_, last_file_ + 1}) {
      if (likely < files.size() && files[likely].path == path) return last_file_ = likely;
    }
    if (!pickle::is_utf8(path) || !is_inside_folder(path)) throw Unusual{};
    last_file_ = out_.catalog.add_file(std::string(path), -1);
    return last_file_;
  };
  Token token;
  if (in_.take_get(&token)) {
    if (token.tag() == Tag::kFile) return static_cast<uint32_t>(token.index());
    spend(text_of(token).size());
    return add(text_of(token));
  }
  const uint32_t index = add(in_.raw_text());
  in_.memoize(indexed(Tag::kFile, index));
  return index;
}

// ---- storage_meta ----

std::string FastReader::optional_text() {
  if (in_.take_if(pickle::kOpNone)) return {};
  return std::string(text_of(in_.primary()));
}

void FastReader::storage_meta() {
  has_storage_meta_ = true;
  in_.expect_global(Class::kStorageMeta);
  attributes([&](Word word) {
    switch (word) {
      case Word::kCheckpointId:
        if (!in_.take_if(pickle::kOpNone)) {
          const Token first = in_.primary();
          const bool is_text = first.tag() != Tag::kClass && first != Token(Word::kPathlibModule);
          out_.checkpoint_id = is_text ? std::string(text_of(first)) : path_object(first);
        }
        break;
      case Word::kSaveId:
        out_.save_id = optional_text();
        break;
      case Word::kLoadId:
        optional_text();
        break;
      case Word::kModules:
        in_.expect(pickle::kOpEmptyList);
        in_.memoize();
        break;
      default:
        throw Unusual{};
    }
  });
}

// A PosixPath of plain parts: ("/", "a", "b") is "/a/b".
std::string FastReader::path_object(Token first) {
  in_.expect_global(Class::kPosixPath, first);
  std::vector<std::string> parts;
  const bool is_counted = !in_.take_if(pickle::kOpMark);
  size_t count = 0;
  while (count == 0) {
    const uint8_t opcode = in_.peek();
    if (opcode == pickle::kOpTuple || (opcode >= pickle::kOpTuple1 && opcode <= pickle::kOpTuple3)) {
      count = opcode == pickle::kOpTuple ? parts.size() : opcode - pickle::kOpTuple1 + 1u;
      if (is_counted == (opcode == pickle::kOpTuple) || count != parts.size() || count == 0) throw Unusual{};
      in_.take();
    } else {
      parts.emplace_back(text_of(in_.primary()));
      spend(parts.back().size());
    }
  }
  in_.memoize();
  in_.expect(pickle::kOpReduce);
  in_.memoize();
  std::string path;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_root = i == 0 && parts[i] == "/";
    if (!is_root && (!is_inside_folder(parts[i]) || parts[i].find('/') != std::string::npos)) throw Unusual{};
    if (i > 0 && path.back() != '/') path += '/';
    path += parts[i];
  }
  return path;
}

// ---- the end ----

void FastReader::finish() {
  if (located_objects_ != static_cast<int64_t>(catalog().objects().size())) throw Unusual{};
  if (located_chunks_ != catalog().num_chunks()) {
    for (const Catalog::Tensor& tensor : catalog().tensors()) {
      for (int64_t c = tensor.first_chunk; c < tensor.first_chunk + tensor.num_chunks; ++c) {
        const bool has_location = catalog().chunk_location(c).file != Location::kNoFile;
        if (!has_location && !catalog().chunk_box(tensor, c).empty()) throw Unusual{};
      }
    }
  }
  const bool is_tensors_first =
      std::is_partitioned(order_.begin(), order_.end(), [](int64_t entry) { return entry >= 0; });
  if (!is_tensors_first) {
    std::vector<std::string> names;
    names.reserve(order_.size());
    for (int64_t entry : order_) {
      names.push_back(entry >= 0 ? catalog().tensors()[static_cast<size_t>(entry)].name
                                 : catalog().objects()[static_cast<size_t>(-1 - entry)].name);
    }
    out_.catalog.set_order(std::move(names));
  }
  conclude(stray_storage_, stray_paths_, has_storage_meta_, &out_);
}

}  // namespace milepost::dcp
