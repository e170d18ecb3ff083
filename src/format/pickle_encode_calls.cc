// What protocol 2 writes as a call: bytes, sets, sizes, objects and tensors.
#include <array>
#include <utility>

#include "format/pickle_encoder.h"
#include "format/pickle_machine.h"
#include "format/pickle_text.h"

namespace milepost::pickle {
namespace {

// Identities of texts that the encoder itself brings in.
constexpr char kStorageTag[] = "storage", kCpu[] = "cpu", kLatin1[] = "latin1";
// Python has one text for each byte that it decodes alone.
constexpr std::array<char, 256> kDecodedBytes{};

}  // namespace

void Encoder::write_global(std::string_view module, std::string_view name) {
  if (module == "builtins") {  // Python 2's names
    module = "__builtin__";
    if (name == "range") name = "xrange";
    if (name == "str") name = "unicode";
    if (name == "int") name = "long";
  } else if (module == "copyreg") {
    module = "copy_reg";
  }
  const std::string text = std::string(module) + "\n" + std::string(name) + "\n";
  if (const auto found = globals_.find(text); found != globals_.end()) return get(found->second);
  op(kOpGlobal);
  out_ += text;
  globals_[text] = put();
}

// REDUCE, and the number; unless the arguments led back to the same value.
void Encoder::end_call(const Identity& identity) {
  op(kOpReduce);
  if (is_written(identity)) {
    op(kOpPop);
    written(identity);
  } else {
    put(identity);
  }
}

void Encoder::write_call_of_items(std::string_view name, const Value& v) {
  const auto items = children(v).items;
  write_global("builtins", name);
  if (items.size() > 3) op(kOpMark);
  for (const Value& item : items) write(item);
  close_tuple(items.size());
  put();
  end_call(identity_of(v));
}

void Encoder::write_set(const Value& v) {
  write_global("builtins", v.kind() == Kind::kSet ? "set" : "frozenset");
  op(kOpEmptyList);
  put();
  write_list_items(children(v).items);
  close_tuple(1);
  put();
  end_call(identity_of(v));
}

void Encoder::write_size(const Value& v) {
  const auto items = children(v).items;
  write_global("torch", "Size");
  if (items.size() > 3) op(kOpMark);
  for (const Value& item : items) write(item);
  close_tuple(items.size());
  if (!items.empty()) put();
  close_tuple(1);
  put();
  end_call(identity_of(v));
}

void Encoder::write_bytes(const Value& v) {
  if (v.kind() == Kind::kBytes) {
    write_encoded(v.text());
  } else {
    write_global("builtins", "bytearray");
    if (v.text().empty()) {
      close_tuple(0);
    } else {  // bytearray(bytes)
      write_encoded(v.text());
      op(kOpReduce);
      put();
      close_tuple(1);
      put();
    }
  }
  end_call(identity_of(v));
}

// What is called to make the bytes, and the arguments.
void Encoder::write_encoded(std::string_view bytes) {
  if (bytes.empty()) {
    write_global("builtins", "bytes");
    return close_tuple(0);
  }
  write_global("_codecs", "encode");
  write_text(latin1_text(bytes),
             bytes.size() == 1 ? &kDecodedBytes[static_cast<unsigned char>(bytes[0])] : nullptr);
  write_text(kLatin1, kLatin1);
  close_tuple(2);
  put();
}

void Encoder::write_device(const Value& v) {
  const std::string_view text = v.text();
  const size_t colon = text.rfind(':');
  write_global("torch", "device");
  write_text(text.substr(0, colon), nullptr);
  if (colon != std::string_view::npos) write_integer(long_from_text(text.substr(colon + 1))->value);
  close_tuple(colon == std::string_view::npos ? 1 : 2);
  put();
  end_call(identity_of(v));
}

void Encoder::write_path(const Value& v) {
  write_global("pathlib", path_class_name(static_cast<PathStyle>(Layout::detail(v))));
  write_text(v);
  close_tuple(1);
  put();
  end_call(identity_of(v));
}

void Encoder::write_object(const Value& v) {
  const Global& type = *Layout::object(v)->type;
  if (type.role == Role::kShown) {
    fail(ErrorCode::kUnsupported, "a value of the class " + printable(type.text) + " cannot be written");
  }
  write_global(type.module(), type.name());
  if (type.role == Role::kEnum) {
    write(*v.state());
    return end_call(identity_of(v));
  }
  op(kOpEmptyTuple);
  op(kOpNewObj);
  put(identity_of(v));
  if (v.state() == nullptr) return;
  write(*v.state());
  op(kOpBuild);
}

// ---- tensors ----

void Encoder::write_storage(std::string_view key, std::string_view storage_class, int64_t size) {
  op(kOpMark);
  write_text(kStorageTag, kStorageTag);
  if (storage_class.empty()) {
    write_global("torch.storage", "UntypedStorage");
  } else {
    write_global("torch", storage_class);
  }
  if (const auto found = storage_keys_.find(std::string(key)); found != storage_keys_.end()) {
    get(found->second);
  } else {
    op(kOpBinUnicode);
    little(key.size(), 4);
    out_ += key;
    storage_keys_[std::string(key)] = put();
  }
  write_text(kCpu, kCpu);
  write_integer(size);
  op(kOpTuple);
  put();
  op(kOpBinPersId);
}

void Encoder::write_dims(const std::vector<int64_t>& dims) {
  if (dims.size() > 3) op(kOpMark);
  for (const int64_t d : dims) write_integer(d);
  close_tuple(dims.size());
  if (!dims.empty()) put();
}

void Encoder::write_empty_ordered_dict() {
  write_global("collections", "OrderedDict");
  op(kOpEmptyTuple);
  op(kOpReduce);
  put();
}

void Encoder::write_view_bits(const TensorRef& ref) {
  op(kOpEmptyDict);
  put();
  const bool both = ref.conj && ref.neg;
  if (both) op(kOpMark);
  for (const auto& [name, set] : {std::pair{"conj", ref.conj}, std::pair{"neg", ref.neg}}) {
    if (!set) continue;
    write_text(name, name);
    op(kOpNewTrue);
  }
  op(both ? kOpSetItems : kOpSetItem);
}

void Encoder::write_tensor_data(const TensorRef& ref, bool requires_grad) {
  const std::string_view storage_class = dtype_info(ref.dtype).storage;
  const bool untyped = storage_class.empty();
  write_global("torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  op(kOpMark);
  write_storage(ref.storage_key, storage_class,
                untyped ? ref.storage_bytes : ref.storage_bytes / dtype_size(ref.dtype));
  write_integer(ref.storage_offset);
  write_dims(ref.sizes);
  write_dims(ref.strides);
  op(requires_grad ? kOpNewTrue : kOpNewFalse);
  write_empty_ordered_dict();
  if (untyped) write_dtype(ref.dtype);
  if (ref.conj || ref.neg) write_view_bits(ref);
  op(kOpTuple);
  put();
  op(kOpReduce);
}

void Encoder::write_tensor(const TensorRef& ref) {
  if (!ref.is_parameter) return write_tensor_data(ref, ref.requires_grad);
  write_global("torch._utils", "_rebuild_parameter");
  write_tensor_data(ref, false);
  put();
  op(ref.requires_grad ? kOpNewTrue : kOpNewFalse);
  write_empty_ordered_dict();
  close_tuple(3);
  put();
  op(kOpReduce);
}

}  // namespace milepost::pickle
