// The common shape of `.metadata` (spec dcp-format, section 2), read in one pass from opcodes into a Catalog:
//
// 1. `Metadata` instance, state in the order state_dict_metadata, [planner_data], storage_data,
// [storage_meta],
//    [version]. The entries come first, so that names and chunks are known when storage_data refers to them.
// 2. Each entry's chunks go straight into the catalog. What the memo keeps of a chunk is only that its two
// torch.Size
//    objects are "offsets of chunk n" and "sizes of chunk n".
// 3. A storage entry's key is the chunk whose offsets it names: by the very same Size object, or by the index
// that
//    torch gives as a hint and equal offsets, or by search.
// 4. Dicts and lists come as batches MARK ... SETITEMS/APPENDS of up to 1000, or singly with SETITEM/APPEND.
// After an
//    empty dict or list a single item looks like the next attribute of the enclosing object, and only what
//    follows its first token tells (`pending_`).
#include <algorithm>

#include "format/dcp_fast_reader.h"
#include "format/dcp_metadata_fast.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"

namespace milepost::dcp {

Word FastReader::word_of(Token name) const {
  if (const std::optional<Word> word = find_word(text_of(name))) return *word;
  throw Unusual{};
}

std::string_view FastReader::text_of(Token token) const {
  const auto index = static_cast<size_t>(token.index());
  switch (token.tag()) {
    case Tag::kWord:
      return word_text(static_cast<Word>(index));
    case Tag::kText:
      return in_.text(token);
    case Tag::kTensor:
      return catalog().tensors()[index].name;
    case Tag::kObject:
      return catalog().objects()[index].name;
    case Tag::kFile:
      return catalog().files()[index].path;
    default:
      throw Unusual{};
  }
}

Metadata FastReader::read() {
  in_.expect_protocol();
  in_.expect_global(Class::kMetadata);
  attributes([&](Word word) {
    metadata_attribute(word);
    while (pending_) {
      const Word next = word_of(*pending_);
      pending_.reset();
      metadata_attribute(next);
    }
  });
  if ((done_ & bit(Word::kStorageData)) == 0) throw Unusual{};
  in_.expect(pickle::kOpStop);
  finish();
  return std::move(out_);
}

void FastReader::metadata_attribute(Word word) {
  const bool has_entries = (done_ & bit(Word::kStateDictMetadata)) != 0;
  if (static_cast<uint32_t>(word) >= 32 || (done_ & bit(word)) != 0) throw Unusual{};
  done_ |= bit(word);
  if (word == Word::kStateDictMetadata) {
    text_dict([&] {
      int64_t key_memo;
      const Token key = in_.primary(&key_memo);
      if (in_.peek() == pickle::kOpEmptyDict || in_.peek() == pickle::kOpNone) {
        pending_ = key;
      } else {
        entry(key, key_memo);
      }
    });
  } else if (word == Word::kPlannerData && has_entries) {
    if (!in_.take_if(pickle::kOpNone)) paths();
  } else if (word == Word::kStorageData && has_entries) {
    storage_data();
  } else if (word == Word::kStorageMeta) {
    if (!in_.take_if(pickle::kOpNone)) storage_meta();
  } else if (word == Word::kVersionName) {
    out_.version = optional_text();
  } else {
    throw Unusual{};
  }
}

// ---- state_dict_metadata ----

void FastReader::entry(Token key, int64_t key_memo) {
  const Token which = in_.global();
  if (which.is(Class::kTensorStorage)) {
    tensor(key, key_memo);
  } else if (which.is(Class::kBytesStorage)) {
    in_.new_object();
    const int64_t object = out_.catalog.add_object(std::string(text_of(key)));
    in_.patch(key_memo, indexed(Tag::kObject, object));
    if (key_memo >= 0) in_.drop_text(key);
    order_.push_back(-1 - object);
  } else {
    throw Unusual{};
  }
}

void FastReader::tensor(Token key, int64_t key_memo) {
  const auto index = static_cast<int64_t>(catalog().tensors().size());
  std::optional<DType> dtype;
  bool has_shape = false;
  const uint32_t seen = attributes([&](Word word) {
    if (word == Word::kProperties) {
      dtype = properties();
    } else if (word == Word::kSize) {
      const Token reference = size(indexed(Tag::kShape, index), &shape_);
      if (reference != Token()) load(reference, &shape_);
      has_shape = true;
    } else if (word == Word::kChunks && dtype && has_shape) {
      out_.catalog.add_tensor(std::string(text_of(key)), *dtype, shape_.view());
      tensor_bytes(catalog().tensors().back());
      in_.patch(key_memo, indexed(Tag::kTensor, index));
      if (key_memo >= 0) in_.drop_text(key);
      order_.push_back(index);
      chunks();
    } else {
      throw Unusual{};
    }
  });
  if ((seen & bit(Word::kChunks)) == 0) throw Unusual{};
}

DType FastReader::properties() {
  const Token first = in_.primary();
  if (first.tag() == Tag::kProperties) return static_cast<DType>(first.index());
  const Token which = in_.global(first);
  if (!which.is(Class::kProperties) && !which.is(Class::kOldProperties)) throw Unusual{};
  const int64_t instance = in_.new_object();
  in_.expect(pickle::kOpMark);
  const Token dtype = in_.global();
  if (dtype.tag() != Tag::kDType) throw Unusual{};
  layout();
  in_.boolean();
  memory_format();
  in_.boolean();
  in_.expect(pickle::kOpTuple);
  in_.memoize();
  in_.expect(pickle::kOpBuild);
  in_.patch(instance, {Tag::kProperties, dtype.index()});
  return static_cast<DType>(dtype.index());
}

void FastReader::layout() {
  const Token first = in_.primary();
  if (first.tag() == Tag::kLayout) return;
  in_.expect_global(Class::kGetLayout, first);
  if (in_.primary() != Token(Word::kStrided)) throw Unusual{};
  in_.call({Tag::kLayout, 0});
}

void FastReader::memory_format() {
  const Token first = in_.primary();
  if (first.tag() == Tag::kMemoryFormat) return;
  const Token which = in_.global(first);
  if (!which.is(Class::kMemoryFormat) && !which.is(Class::kOldMemoryFormat)) throw Unusual{};
  const int64_t format = in_.integer();
  if (format < 0 || format > 2) throw Unusual{};
  in_.call({Tag::kMemoryFormat, 0});
}

void FastReader::chunks() {
  ascending_ = true;
  in_.expect(pickle::kOpEmptyList);
  in_.memoize();
  while (true) {
    if (in_.take_if(pickle::kOpMark)) {
      while (!in_.take_if(pickle::kOpAppends)) chunk(in_.primary());
    } else if (in_.at_name() || in_.peek() == pickle::kOpGlobal) {
      chunk(in_.primary());
      in_.expect(pickle::kOpAppend);
    } else {
      break;
    }
  }
  const auto index = static_cast<int64_t>(catalog().tensors().size()) - 1;
  if (!ascending_ && !lookup_.sort(index)) throw Unusual{};
}

void FastReader::chunk(Token first) {
  in_.expect_global(Class::kChunk, first);
  const int64_t index = catalog().num_chunks();
  const Token offsets_token = indexed(Tag::kOffsets, index), sizes_token(Tag::kSizes, index);
  const uint32_t seen = attributes([&](Word word) {
    const bool is_offsets = word == Word::kOffsets;
    Values* values = is_offsets ? &offsets_ : &sizes_;
    if (!is_offsets && word != Word::kSizes) throw Unusual{};
    const Token reference = size(is_offsets ? offsets_token : sizes_token, values);
    if (reference != Token()) load(reference, values);
  });
  if (seen != (bit(Word::kOffsets) | bit(Word::kSizes))) throw Unusual{};

  const Catalog::Tensor& tensor = catalog().tensors().back();
  const size_t ndim = tensor.shape.size();
  if (offsets_.size != ndim || sizes_.size != ndim) throw Unusual{};
  if (ndim > 4) spend(ndim * 2 * sizeof(int64_t));  // fewer are within what their opcodes justify
  for (size_t d = 0; d < ndim; ++d) {
    if (!range_fits(offsets_.values[d], sizes_.values[d], tensor.shape[d])) throw Unusual{};
  }
  if (tensor.num_chunks > 0) {
    ascending_ &= std::ranges::lexicographical_compare(previous_.view(), offsets_.view());
  }
  previous_.assign(offsets_.view());
  out_.catalog.add_chunk(offsets_.view(), sizes_.view());
}

// A torch.Size, whose memo entry shall be `self`. Returns Token() when `values` are filled, else a reference
// for load().
Token FastReader::size(Token self, Values* values) {
  const Token first = in_.primary();
  if (first.tag() == Tag::kShape || first.tag() == Tag::kOffsets || first.tag() == Tag::kSizes) return first;
  in_.expect_global(Class::kSize, first);
  values->size = 0;
  if (in_.take_if(pickle::kOpMark)) {
    while (!in_.take_if(pickle::kOpTuple)) values->push(in_.integer());
    in_.memoize();
  } else if (!in_.take_if(pickle::kOpEmptyTuple)) {
    size_t count = 0;
    while (count == 0) {
      const uint8_t opcode = in_.peek();
      if (opcode >= pickle::kOpTuple1 && opcode <= pickle::kOpTuple3) {
        in_.take();
        count = opcode - pickle::kOpTuple1 + 1u;
      } else {
        values->push(in_.integer());
      }
    }
    if (values->size != count) throw Unusual{};
    in_.memoize();
  }
  in_.call(self);
  return {};
}

void FastReader::load(Token reference, Values* values) const {
  const std::vector<Catalog::Tensor>& tensors = catalog().tensors();
  const int64_t index = reference.index();
  if (reference.tag() == Tag::kShape) {
    if (index >= static_cast<int64_t>(tensors.size())) throw Unusual{};
    values->assign(tensors[static_cast<size_t>(index)].shape);
    return;
  }
  if (index >= catalog().num_chunks()) throw Unusual{};  // of the chunk that is being read
  const auto after = std::upper_bound(tensors.begin(), tensors.end(), index,
                                      [](int64_t i, const Catalog::Tensor& t) { return i < t.first_chunk; });
  const Box box = catalog().chunk_box(*(after - 1), index);
  values->assign(reference.tag() == Tag::kOffsets ? box.offsets : box.sizes);
}

std::optional<Metadata> read_metadata_fast(const ByteSource& source) {
  try {
    return FastReader(source).read();
  } catch (const Unusual&) {
    return std::nullopt;
  } catch (const FormatError&) {  // a name twice, a shape beyond all sizes: the general reader words it
    return std::nullopt;
  }
}

}  // namespace milepost::dcp
