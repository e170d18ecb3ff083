// Pickle: a small virtual machine that reads Python pickles of protocols 0 to 5 into a value tree and executes nothing, and the encoder for the way back.
//
// Classes and functions are looked up in a fixed table by module and name (spec dcp-format, sections 2.1 and 12). Anything else is refused by name (FormatError
// kRefusedGlobal, offset of the opcode) or, where `Options::keep_unknown_globals`, becomes an Opaque node so that the rest can still be shown. No name from a file is ever
// imported, called or used as a path.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/tensor/dtype.h"

namespace milepost::pickle {

enum class Kind : uint8_t {
  kNone, kBool, kInt, kBigInt, kFloat, kComplex, kString, kBytes, kByteArray,
  kList, kTuple, kDict, kSet, kFrozenSet,
  kSize,    // torch.Size
  kDType,   // a torch dtype
  kDevice,  // torch.device
  kPath,    // pathlib: text() is the joined path
  kSlice, kRange,  // three items
  kStorage, // persistent id of a storage
  kTensor,  // a rebuilt tensor (also Parameter)
  kObject,  // an instance of an allowed class: class_name(), state() (kDict, kTuple or none)
  kGlobal,  // an allowed class or function itself
  kOpaque,  // something refused, kept for display: class_name() says what
};

struct TensorRef;  // below

// A node of the tree. Owned by its Document, immutable once reading is done; 16 to 32 bytes. Accessors require the kind (assert).
// Shared and self-referential structures are possible: whoever walks bounds depth and count.
class Value {
 public:
  Kind kind() const;
  bool is_none() const { return kind() == Kind::kNone; }
  bool as_bool() const;
  int64_t as_int() const;                  // kInt, kBool
  double as_double() const;                // kFloat
  std::string_view text() const;           // kString (UTF-8), kBytes, kByteArray, kPath, kDevice; kBigInt: decimal digits
  std::string_view class_name() const;     // kObject, kGlobal, kOpaque: "module name"; kDict: "" or "collections OrderedDict"/"collections defaultdict"/"collections Counter"
  DType dtype() const;                     // kDType
  int64_t size() const;                    // items of kList, kTuple, kSize, kSet, kFrozenSet, kSlice, kRange, kComplex (2); pairs of kDict
  const Value& item(int64_t i) const;      // not for kDict
  const Value& key(int64_t i) const;       // kDict, insertion order; a repeated key keeps its place and takes the last value, as in Python
  const Value& value(int64_t i) const;     // kDict
  const Value* find(std::string_view string_key) const;  // kDict: value or nullptr; linear
  const Value* state() const;              // kObject: what BUILD gave, or nullptr
  const TensorRef& tensor() const;         // kTensor

 private:
  friend class Machine;
  friend class Builder;
  // (layout is the implementer's; see src/format/pickle_machine.cc)
};

// A tensor inside a pickle: which storage, and how it looks at it.
struct TensorRef {
  std::string_view storage_key;   // "0": the record data/0
  DType dtype;
  int64_t storage_bytes = 0;      // size of the whole storage as the pickle claims it
  int64_t storage_offset = 0;     // elements
  std::vector<int64_t> sizes, strides;  // elements, as many of each, validated: sizes >= 0, strides >= 0, the last element lies inside the storage
  bool requires_grad = false, conj = false, neg = false, is_parameter = false;
};

// Which globals a pickle may name.
enum class Profile : uint8_t {
  kDcpMetadata,  // table of section 2.1
  kTorchSave,    // items and .pth files: tensors, containers, builtins of section 12
  kPlain,        // a nested pickle inside bytes (a data loader's state): containers and builtins only, plus numpy scalars/arrays/dtype shown as objects
};

struct Options {
  Profile profile = Profile::kTorchSave;
  bool keep_unknown_globals = false;
  int max_depth = 1000;               // of nested containers
  // Limit of what the tree may take, in bytes; 0: 48 x the pickle's size + 1 MiB. Beyond it: FormatError kTooLarge.
  int64_t max_memory_bytes = 0;
};

// A read pickle: owns all its values. Movable; values stay at their addresses.
class Document {
 public:
  Document();
  Document(Document&&) noexcept;
  Document& operator=(Document&&) noexcept;
  ~Document();
  const Value& root() const;
  int64_t bytes_read() const;  // up to and including STOP

 private:
  friend class Machine;
  friend class Builder;
  struct Arena;
  std::unique_ptr<Arena> arena_;
};

// Reads one pickle from the start of `bytes`; what follows STOP is not looked at. Throws FormatError with the offset of the opcode at fault: kTruncated, kBadFormat,
// kRefusedGlobal (summary names module and name), kTooLarge, kUnsupported. `name` goes into errors as path. Cost: about 20 ns an opcode. Threads: reentrant.
Document read(Bytes bytes, const Options& options, std::string_view name);

// Makes values without a file: for writing and tests. All values belong to the builder's document.
class Builder {
 public:
  Builder();
  ~Builder();
  const Value* none();
  const Value* boolean(bool v);
  const Value* integer(int64_t v);
  const Value* floating(double v);
  const Value* string(std::string_view v);
  const Value* bytes(std::string_view v);
  const Value* list(std::span<const Value* const> items);
  const Value* tuple(std::span<const Value* const> items);
  const Value* dict(std::span<const Value* const> keys_and_values, std::string_view class_name = {});
  const Value* tensor(TensorRef ref);
  // A deep copy of a value of another document (its tensors' storage keys mapped by `rename_storage(key)` when given).
  const Value* copy(const Value& value);
  Document finish(const Value* root);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Encodes at protocol 2 as torch.save does: deterministic, BINPUT memo for strings longer than 3 bytes, containers and globals that occur again; tensors become
// _rebuild_tensor_v2/_v3 with a storage persistent id (location "cpu", row-major strides as in the ref). Throws FormatError kUnsupported (class named) for kOpaque and cycles.
void write(const Value& root, ByteSink& sink);

// JSON text of a value in the notation of the test fixtures ($tuple, $bytes, $int, $float, $complex, $set, $size, $dtype, $tensor, $dict). At most `max_nodes` nodes, then FormatError
// kTooLarge. With `nested_pickles`, bytes that hold a whole pickle are shown as {"$pickle": value}.
std::string to_json(const Value& value, bool nested_pickles = false, int64_t max_nodes = 1'000'000);

// Whether `bytes` (of a kBytes value) look like a whole pickle (PROTO 2 to 5 ... STOP at the very end).
bool looks_like_pickle(std::string_view bytes);

}  // namespace milepost::pickle
