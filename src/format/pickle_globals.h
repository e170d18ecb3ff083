// The classes and functions that a pickle may name, and what each stands for here. Only the files of `pickle`
// include this.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "milepost/format/pickle.h"
#include "milepost/tensor/dtype.h"

namespace milepost::pickle {

enum class Role : uint8_t {
  kUnknown,        // not on the list: kept only for display
  kRecord,         // NEWOBJ and BUILD: an object with a state
  kEnum,           // called with a number: an object whose state is the arguments
  kShown,          // called with anything: an object whose state is the arguments and what BUILD gives
  kInert,          // may be named, never called
  kReconstructor,  // copyreg: (class, object, None), what protocols 0 and 1 have for NEWOBJ
  kSize,
  kDevice,
  kLayout,
  kPath,
  kDTypeName,
  kStorageClass,
  kUntypedStorage,
  kTensorV2,
  kTensorV3,
  kParameter,
  kParameterWithState,
  kOrderedDict,
  kDefaultDict,
  kCounter,
  kEncode,
  kBytes,
  kByteArray,
  kComplex,
  kSlice,
  kRange,
  kSet,
  kFrozenSet,
};

struct Global {
  std::string_view text;     // "module name"
  size_t module_length = 0;  // the space comes after it
  Role role = Role::kUnknown;
  uint8_t profiles = 0;  // bit Profile
  uint8_t detail = 0;    // kPath: PathStyle; kDTypeName, kStorageClass: DType

  constexpr std::string_view module() const { return text.substr(0, module_length); }
  constexpr std::string_view name() const { return text.substr(module_length + 1); }
};

enum class PathStyle : uint8_t { kPosix, kPurePosix, kWindows, kPureWindows, kPure, kPlain };
std::string_view path_class_name(PathStyle style);

// The entry of the fixed table, whatever the profile; nullptr when there is none. Names of Python 2, which
// protocols 0 to 2 use, give the entry of Python 3's. dtypes and storage classes are not in the table: see
// find_torch_name.
const Global* find_global(std::string_view module, std::string_view name);

// "torch float32" (kDTypeName) and "torch FloatStorage" (kStorageClass).
struct TorchName {
  Role role;
  DType dtype;
};
std::optional<TorchName> find_torch_name(std::string_view module, std::string_view name);

inline bool allows(uint8_t profiles, Profile profile) {
  return (profiles >> static_cast<int>(profile) & 1) != 0;
}

}  // namespace milepost::pickle
