// Storages and tensors inside a pickle:
//
// 1. A storage is the persistent id ("storage", class, key, location, size): its bytes lie in the record
//    data/<key>. `size` counts elements of a typed class and bytes of UntypedStorage; the location ("cpu",
//    "cuda:0") is ignored.
// 2. _rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, hooks[, {"conj": True, "neg": True}])
//    looks at a typed storage; _v3 has the dtype before the dict and looks at an untyped one.
// 3. _rebuild_parameter(tensor, requires_grad, hooks) marks it as a parameter. All numbers are checked here,
//    once: what follows may index the storage without looking.
#include "format/pickle_machine.h"
#include "milepost/base/checked_math.h"
#include "milepost/tensor/box.h"

namespace milepost::pickle {
namespace {

[[noreturn]] void fail_tensor(const std::string& why) { fail_bad("a tensor in the pickle " + why); }

std::vector<int64_t> dims(const Value& v, const char* what) {
  if (v.kind() != Kind::kTuple && v.kind() != Kind::kSize)
    fail_tensor(std::string("has no tuple of ") + what);
  const auto size = static_cast<size_t>(v.size());
  if (size > kMaxDims) fail_tensor("has " + std::to_string(size) + " dimensions (at most 64)");
  std::vector<int64_t> numbers(size);
  for (size_t d = 0; d < size; ++d) {
    const Value& number = v.item(static_cast<int64_t>(d));
    if (number.kind() != Kind::kInt || number.as_int() < 0) fail_tensor(std::string("has bad ") + what);
    numbers[d] = number.as_int();
  }
  return numbers;
}

// The last element lies inside the storage: offset + sum((size - 1) * stride) < storage elements.
void check_extent(const TensorRef& ref) {
  int64_t num_elements = 0;
  if (ref.sizes.size() != ref.strides.size()) fail_tensor("has not as many strides as sizes");
  if (!checked_product(ref.sizes, &num_elements) || !dtype_bytes(ref.dtype, num_elements)) {
    fail_tensor("has sizes whose product overflows");
  }
  if (num_elements == 0) return;
  int64_t last = ref.storage_offset;
  for (size_t d = 0; d < ref.sizes.size(); ++d) {
    int64_t step = 0;
    if (!checked_mul(ref.sizes[d] - 1, ref.strides[d], &step) || !checked_add(last, step, &last)) {
      fail_tensor("has strides that overflow");
    }
  }
  if (last >= ref.storage_bytes / dtype_size(ref.dtype)) {
    fail(ErrorCode::kOutOfBounds, "a tensor in the pickle leaves its storage: element " +
                                      std::to_string(last) + " of " +
                                      std::to_string(ref.storage_bytes / dtype_size(ref.dtype)));
  }
}

void set_view_bits(const Value& bits, TensorRef* ref) {
  if (bits.kind() != Kind::kDict) fail_tensor("has view bits that are no dict");
  for (int64_t i = 0; i < bits.size(); ++i) {
    const std::string_view name = bits.key(i).kind() == Kind::kString ? bits.key(i).text() : "";
    if ((name != "conj" && name != "neg") || bits.value(i).kind() != Kind::kBool) {
      fail(ErrorCode::kUnsupported, "a tensor in the pickle has a view bit '" + printable(name, 40) + "'");
    }
    (name == "conj" ? ref->conj : ref->neg) = bits.value(i).as_bool();
  }
}

}  // namespace

Value Machine::persistent(const Value& id) {
  const bool tagged = id.kind() == Kind::kTuple && id.size() == 5 && id.item(0).kind() == Kind::kString &&
                      id.item(0).text() == "storage";
  if (!tagged || options_.profile != Profile::kTorchSave) {
    fail(ErrorCode::kUnsupported, "a persistent id that stands for no storage");
  }
  const Value &type = id.item(1), &key = id.item(2), &size = id.item(4);
  if (type.kind() == Kind::kOpaque) return type;
  auto* storage = arena_->make<StorageBody>();
  if (type.kind() == Kind::kGlobal && Layout::global(type)->role == Role::kUntypedStorage) {
    storage->untyped = true;
  } else if (type.kind() == Kind::kGlobal && Layout::global(type)->role == Role::kStorageClass) {
    storage->dtype = static_cast<DType>(Layout::global(type)->detail);
  } else {
    fail_bad("the class of a storage is none");
  }
  if (key.kind() != Kind::kString || size.kind() != Kind::kInt || size.as_int() < 0) {
    fail_bad("the key or size of a storage is not what a pickler writes");
  }
  if (!checked_mul(size.as_int(), dtype_size(storage->dtype), &storage->size_bytes)) {
    fail_bad("a storage of " + std::to_string(size.as_int()) + " elements overflows");
  }
  storage->key = key.text();
  return Layout::with_body(Kind::kStorage, storage);
}

Value Machine::rebuild_tensor(std::span<const Value> args, bool dtype_given) {
  const size_t num_fixed = dtype_given ? 7 : 6;
  if (args.size() != num_fixed && args.size() != num_fixed + 1)
    fail_tensor("is rebuilt from the wrong number of arguments");
  if (args[0].kind() == Kind::kOpaque) return args[0];
  if (args[0].kind() != Kind::kStorage) fail_tensor("has no storage");
  const StorageBody& storage = *Layout::storage(args[0]);
  TensorRef ref;
  ref.storage_key = storage.key;
  ref.storage_bytes = storage.size_bytes;
  ref.dtype = storage.dtype;
  if (dtype_given) {
    if (args[6].kind() != Kind::kDType) fail_tensor("has no dtype");
    ref.dtype = args[6].dtype();
  }
  if (args[1].kind() != Kind::kInt || args[1].as_int() < 0) fail_tensor("has a bad storage offset");
  if (args[4].kind() != Kind::kBool) fail_tensor("has a bad requires_grad");
  ref.storage_offset = args[1].as_int();
  ref.sizes = dims(args[2], "sizes");
  ref.strides = dims(args[3], "strides");
  ref.requires_grad = args[4].as_bool();
  if (args.size() > num_fixed && !args[num_fixed].is_none()) set_view_bits(args[num_fixed], &ref);
  check_extent(ref);
  return Layout::with_body(Kind::kTensor, arena_->add_tensor(std::move(ref)));
}

Value Machine::rebuild_parameter(std::span<const Value> args, size_t num_args) {
  if (args.size() != num_args) fail_tensor("is rebuilt from the wrong number of arguments");
  if (args[0].kind() == Kind::kOpaque) return args[0];
  if (args[0].kind() != Kind::kTensor || args[1].kind() != Kind::kBool)
    fail_tensor("is no parameter of a tensor");
  TensorRef ref = args[0].tensor();
  ref.is_parameter = true;
  ref.requires_grad = args[1].as_bool();
  return Layout::with_body(Kind::kTensor, arena_->add_tensor(std::move(ref)));
}

}  // namespace milepost::pickle
