#include "format/pickle_globals.h"

#include <array>

namespace milepost::pickle {
namespace {

constexpr uint8_t kDcp = 1 << static_cast<int>(Profile::kDcpMetadata);
constexpr uint8_t kTorch = 1 << static_cast<int>(Profile::kTorchSave);
constexpr uint8_t kPlain = 1 << static_cast<int>(Profile::kPlain);
constexpr uint8_t kItems = kTorch | kPlain;
constexpr uint8_t kAll = kDcp | kItems;

constexpr Global entry(std::string_view text, Role role, uint8_t profiles, uint8_t detail = 0) {
  return {text, text.find(' '), role, profiles, detail};
}
constexpr Global path(std::string_view text, PathStyle style) {
  return entry(text, Role::kPath, kDcp, static_cast<uint8_t>(style));
}

constexpr auto kTable = std::to_array<Global>({
    entry("torch.distributed.checkpoint.metadata Metadata", Role::kRecord, kDcp),
    entry("torch.distributed.checkpoint.metadata TensorStorageMetadata", Role::kRecord, kDcp),
    entry("torch.distributed.checkpoint.metadata BytesStorageMetadata", Role::kRecord, kDcp),
    entry("torch.distributed.checkpoint.metadata ChunkStorageMetadata", Role::kRecord, kDcp),
    entry("torch.distributed.checkpoint.metadata TensorProperties", Role::kRecord, kDcp),
    entry("torch.distributed.checkpoint.metadata MetadataIndex", Role::kRecord, kDcp),
    entry("torch.distributed.checkpoint.metadata StorageMeta", Role::kRecord, kDcp),
    entry("torch.distributed.checkpoint.filesystem _StorageInfo", Role::kRecord, kDcp),
    entry("torch.distributed.checkpoint.metadata _MEM_FORMAT_ENCODING", Role::kEnum, kDcp),
    // torch 2.1 to 2.3
    entry("torch.distributed._shard.sharded_tensor.metadata TensorProperties", Role::kRecord, kDcp),
    entry("torch.distributed._shard.sharded_tensor.metadata MEM_FORMAT_ENCODING", Role::kEnum, kDcp),
    // The module is pathlib._local in Python 3.13.
    path("pathlib PosixPath", PathStyle::kPosix),
    path("pathlib PurePosixPath", PathStyle::kPurePosix),
    path("pathlib WindowsPath", PathStyle::kWindows),
    path("pathlib PureWindowsPath", PathStyle::kPureWindows),
    path("pathlib PurePath", PathStyle::kPure),
    path("pathlib Path", PathStyle::kPlain),
    path("pathlib._local PosixPath", PathStyle::kPosix),
    path("pathlib._local PurePosixPath", PathStyle::kPurePosix),
    path("pathlib._local WindowsPath", PathStyle::kWindows),
    path("pathlib._local PureWindowsPath", PathStyle::kPureWindows),
    path("pathlib._local PurePath", PathStyle::kPure),
    path("pathlib._local Path", PathStyle::kPlain),

    entry("torch Size", Role::kSize, kDcp | kTorch),
    entry("torch.serialization _get_layout", Role::kLayout, kDcp | kTorch),
    entry("torch device", Role::kDevice, kTorch),
    entry("torch.storage UntypedStorage", Role::kUntypedStorage, kTorch),
    entry("torch UntypedStorage", Role::kUntypedStorage, kTorch),
    entry("torch.storage TypedStorage", Role::kInert, kTorch),
    entry("torch._utils _rebuild_tensor_v2", Role::kTensorV2, kTorch),
    entry("torch._utils _rebuild_tensor_v3", Role::kTensorV3, kTorch),
    entry("torch._utils _rebuild_parameter", Role::kParameter, kTorch),
    entry("torch._utils _rebuild_parameter_with_state", Role::kParameterWithState, kTorch),

    entry("collections OrderedDict", Role::kOrderedDict, kItems),
    entry("collections defaultdict", Role::kDefaultDict, kItems),
    entry("collections Counter", Role::kCounter, kItems),
    entry("_codecs encode", Role::kEncode, kItems),

    entry("builtins set", Role::kSet, kItems),
    entry("builtins frozenset", Role::kFrozenSet, kItems),
    entry("builtins complex", Role::kComplex, kItems),
    entry("builtins bytes", Role::kBytes, kItems),
    entry("builtins bytearray", Role::kByteArray, kItems),
    entry("builtins slice", Role::kSlice, kItems),
    entry("builtins range", Role::kRange, kItems),

    // Factories of defaultdicts.
    entry("builtins int", Role::kInert, kItems),
    entry("builtins float", Role::kInert, kItems),
    entry("builtins bool", Role::kInert, kItems),
    entry("builtins str", Role::kInert, kItems),
    entry("builtins list", Role::kInert, kItems),
    entry("builtins tuple", Role::kInert, kItems),
    entry("builtins dict", Role::kInert, kItems),

    entry("copyreg _reconstructor", Role::kReconstructor, kAll),
    entry("builtins object", Role::kInert, kAll),

    entry("numpy dtype", Role::kShown, kPlain),
    entry("numpy ndarray", Role::kShown, kPlain),
    entry("numpy.core.multiarray scalar", Role::kShown, kPlain),
    entry("numpy.core.multiarray _reconstruct", Role::kShown, kPlain),
    entry("numpy.core.numeric _frombuffer", Role::kShown, kPlain),
    entry("numpy._core.multiarray scalar", Role::kShown, kPlain),
    entry("numpy._core.multiarray _reconstruct", Role::kShown, kPlain),
    entry("numpy._core.numeric _frombuffer", Role::kShown, kPlain),
});

// Open addressing over lengths and a few characters: the full text is compared anyway.
constexpr size_t kSlots = 256;
constexpr size_t slot_of(std::string_view module, std::string_view name) {
  if (module.empty() || name.empty()) return 0;
  const auto byte = [](char c) { return static_cast<size_t>(static_cast<unsigned char>(c)); };
  return (module.size() * 37 + name.size() * 11 + byte(module.back()) * 3 + byte(name.front()) * 5 +
          byte(name.back()) * 7 + byte(name[name.size() / 2])) %
         kSlots;
}

constexpr std::array<uint8_t, kSlots> make_index() {
  static_assert(kTable.size() < 0xff && kTable.size() < kSlots / 2);
  std::array<uint8_t, kSlots> index{};
  for (size_t i = 0; i < kTable.size(); ++i) {
    size_t slot = slot_of(kTable[i].module(), kTable[i].name());
    while (index[slot] != 0) slot = (slot + 1) % kSlots;
    index[slot] = static_cast<uint8_t>(i + 1);
  }
  return index;
}
constexpr std::array<uint8_t, kSlots> kIndex = make_index();

}  // namespace

const Global* find_global(std::string_view module, std::string_view name) {
  if (module == "__builtin__") {
    module = "builtins";
    if (name == "xrange") name = "range";
    if (name == "unicode") name = "str";
    if (name == "long") name = "int";
  } else if (module == "copy_reg") {
    module = "copyreg";
  }
  for (size_t slot = slot_of(module, name); kIndex[slot] != 0; slot = (slot + 1) % kSlots) {
    const Global& global = kTable[kIndex[slot] - 1u];
    if (global.module() == module && global.name() == name) return &global;
  }
  return nullptr;
}

std::optional<TorchName> find_torch_name(std::string_view module, std::string_view name) {
  if (module != "torch") return std::nullopt;
  if (name.ends_with("Storage")) {
    if (const auto dtype = dtype_from_storage(name)) return TorchName{Role::kStorageClass, *dtype};
    return std::nullopt;
  }
  const auto dtype = dtype_from_name(name);
  if (!dtype || !dtype_info(*dtype).in_torch) return std::nullopt;
  return TorchName{Role::kDTypeName, *dtype};
}

std::string_view path_class_name(PathStyle style) {
  switch (style) {
    case PathStyle::kPosix:
      return "PosixPath";
    case PathStyle::kPurePosix:
      return "PurePosixPath";
    case PathStyle::kWindows:
      return "WindowsPath";
    case PathStyle::kPureWindows:
      return "PureWindowsPath";
    case PathStyle::kPure:
      return "PurePath";
    case PathStyle::kPlain:
      return "Path";
  }
  return "PosixPath";
}

}  // namespace milepost::pickle
