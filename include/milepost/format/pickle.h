// Pickle: a small virtual machine that reads Python pickles of protocols 0 to 5 into a value tree and
// executes nothing, and the encoder for the way back.
//
// Classes and functions are looked up in a fixed table by module and name (spec dcp-format, sections 2.1 and
// 12). Anything else is refused by name (FormatError kRefusedGlobal, offset of the opcode) or, with
// `Options::keep_unknown_globals`, becomes an opaque node so that the rest can still be shown. No name from a
// file is ever imported, called or used as a path.
#pragma once

#include <cassert>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/tensor/dtype.h"

namespace milepost::pickle {

enum class Kind : uint8_t {
  kNone,
  kBool,
  kInt,
  kBigInt,  // beyond int64_t
  kFloat,
  kComplex,
  kString,
  kBytes,
  kByteArray,
  kList,
  kTuple,
  kDict,
  kSet,
  kFrozenSet,
  kSize,     // torch.Size
  kDType,    // a torch dtype
  kDevice,   // torch.device
  kPath,     // pathlib: text() is the joined path
  kSlice,    // three items
  kRange,    // three items
  kStorage,  // persistent id of a storage: text() is its key
  kTensor,   // a rebuilt tensor (also Parameter)
  kObject,   // an instance of an allowed class: class_name(), state()
  kGlobal,   // an allowed class or function itself
  kOpaque,   // something refused, kept for display: class_name() says what
};

struct TensorRef;  // below
class Arena;       // src/format/pickle_arena.h
struct Layout;     // src/format/pickle_arena.h

// A node of the tree: a handle of 16 bytes whose content belongs to a Document. Copies of a handle are the
// same node, valid as long as its Document. Immutable once reading is done, so any number of threads may look
// at it. Requires, of every accessor: the kind that it names (assert). Shared and self-referential structures
// are possible: whoever walks bounds depth and count.
class Value {
 public:
  Value() = default;  // None

  Kind kind() const { return static_cast<Kind>(bits_ & 0xff); }
  bool is_none() const { return kind() == Kind::kNone; }
  bool as_bool() const;      // kBool
  int64_t as_int() const;    // kInt, kBool
  double as_double() const;  // kFloat

  // kString: UTF-8, in which lone surrogates may occur (three bytes each, as Python's "surrogatepass" writes
  // them); kBytes, kByteArray: the bytes; kPath, kDevice ("cuda:0"); kStorage: its key; kBigInt: decimal
  // digits.
  std::string_view text() const;

  // kObject, kGlobal, kOpaque: "module name". kDict: "" or "collections OrderedDict", "collections
  // defaultdict", "collections Counter".
  std::string_view class_name() const;

  DType dtype() const;  // kDType

  // Items of kList, kTuple, kSize, kSet, kFrozenSet, kSlice, kRange (3) and kComplex (2); pairs of kDict.
  int64_t size() const;
  const Value& item(int64_t i) const;  // all of these but kDict

  // kDict, in insertion order. A repeated key keeps its place and takes the last value, as in Python; keys
  // that are objects are equal only when they are the same object.
  const Value& key(int64_t i) const;
  const Value& value(int64_t i) const;
  const Value* find(std::string_view string_key) const;  // the value or nullptr; cost: linear

  // kObject: what BUILD gave, or nullptr; the arguments for enumerations (a tuple of the number); the
  // arguments, then what BUILD gave, for what numpy pickles (a tuple). kDict: attributes set on an
  // OrderedDict, such as the `_metadata` of a module's state dict, or nullptr.
  const Value* state() const;

  const TensorRef& tensor() const;  // kTensor

 private:
  friend struct Layout;
  const Value* items() const;

  uint64_t bits_ = 0;  // kind: 8 bits, detail of the kind: 8 bits, size or length: 48 bits
  union {
    int64_t integer_ = 0;
    double real_;
    const char* text_;
    const Value* items_;
    const void* body_;
  };
};

// A tensor inside a pickle: which storage, and how it looks at it.
struct TensorRef {
  std::string_view storage_key;  // "0": the record data/0; belongs to the Document
  DType dtype = DType::kFloat32;
  int64_t storage_bytes = 0;   // size of the whole storage as the pickle claims it
  int64_t storage_offset = 0;  // elements, >= 0
  // Elements, as many of each, at most kMaxDims. Validated: none is negative, the last element lies inside
  // the storage (a tensor without elements may have any strides).
  std::vector<int64_t> sizes, strides;
  bool requires_grad = false, conj = false, neg = false, is_parameter = false;
};

// Which globals a pickle may name.
enum class Profile : uint8_t {
  kDcpMetadata,  // table of section 2.1
  kTorchSave,    // items and .pth files: tensors, containers, builtins of section 12
  kPlain,  // a nested pickle inside bytes (a data loader's state): containers and builtins only, and numpy's
           // scalars, arrays and dtypes as objects that are shown, not made
};

struct Options {
  Profile profile = Profile::kTorchSave;
  bool keep_unknown_globals = false;
  int max_depth = 1000;  // of nested containers
  // Limit of what the tree may take, in bytes; 0: 48 x the pickle's size + 1 MiB. Beyond it: FormatError
  // kTooLarge. Stack and memo come on top while reading: at most 64 bytes a byte of the pickle.
  int64_t max_memory_bytes = 0;
};

// A read pickle: owns all its values. Movable; values stay at their addresses.
class Document {
 public:
  Document();  // None
  Document(Document&&) noexcept;
  Document& operator=(Document&&) noexcept;
  ~Document();

  const Value& root() const;
  int64_t bytes_read() const;    // up to and including STOP
  int64_t memory_bytes() const;  // what the tree takes

 private:
  friend class Machine;
  friend class Builder;
  explicit Document(std::unique_ptr<Arena> arena);
  std::unique_ptr<Arena> arena_;
};

// Reads one pickle from the start of `bytes`; what follows STOP is not looked at, and `bytes` is not needed
// afterwards. Throws FormatError with the offset of the opcode at fault and `name` as path:
//   kTruncated      the pickle ends before STOP
//   kBadFormat      an opcode, count, text or argument that no pickler writes
//   kOutOfBounds    a tensor that leaves its storage
//   kRefusedGlobal  a class or function outside the profile; the summary holds "module.name"
//   kTooLarge       nesting, memory, an integer of more than 1024 bytes, keys that take too long to compare
//   kUnsupported    a newer protocol, out-of-band buffers, extension codes, persistent ids that are no
// storages Cost: about 20 ns an opcode. Threads: reentrant.
Document read(Bytes bytes, const Options& options, std::string_view name);

// Makes values without a file: for writing and tests. All values belong to the builder, then to the document
// that finish() gives. Equal strings become one value, so that the encoder writes them once. Arguments may
// belong to other documents only in copy(). Threads: one.
class Builder {
 public:
  Builder();
  ~Builder();

  const Value* none();
  const Value* boolean(bool v);
  const Value* integer(int64_t v);
  const Value* floating(double v);
  const Value* string(std::string_view v);  // requires UTF-8
  const Value* bytes(std::string_view v);
  const Value* list(std::span<const Value* const> items);
  const Value* tuple(std::span<const Value* const> items);
  // Keys and values alternate; requires distinct keys. `class_name` as Value::class_name() gives it for
  // dicts.
  const Value* dict(std::span<const Value* const> keys_and_values, std::string_view class_name = {});
  const Value* tensor(const TensorRef& ref);

  // A deep copy of a value of another document, with sharing and cycles kept. Storage keys of tensors and
  // storages are mapped by `rename_storage` when given.
  using RenameStorage = std::function<std::string(std::string_view key)>;
  const Value* copy(const Value& value, const RenameStorage& rename_storage = {});

  // Ends the builder's life: no other call may follow.
  Document finish(const Value* root);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Encodes at protocol 2 with the opcodes and memo numbers of Python's own pickler, so that a value read from
// a torch.save file comes out byte for byte as it was (locations of storages apart: always "cpu"). Tensors
// become _rebuild_tensor_v2, or _v3 for dtypes without a storage class, with a storage's persistent id. What
// is the same node is written once; cycles are kept. Throws FormatError kUnsupported for kOpaque and for
// objects that numpy pickled (class named), kTooLarge beyond 1000 nested containers.
void write(const Value& root, ByteSink& sink);

struct JsonOptions {
  bool nested_pickles = false;  // bytes that hold a whole pickle are shown as {"$pickle": value}
  int64_t max_nodes =
      1'000'000;  // values, and one more for each 256 bytes of text; beyond: FormatError kTooLarge
  // Gives the "sha256" of a tensor's row-major elements, for who has the payload; without it the member is
  // left out.
  std::function<std::string(const TensorRef&)> tensor_sha256 = {};
};

// JSON text of a value, as Python's json.dumps lays it out, in UTF-8 (lone surrogates and control characters
// escaped). What JSON has: as it is. The rest: {"$tuple": [...]}, {"$bytes": hex}, {"$int": text} from 2^53
// on, {"$float": "nan", "inf" or "-inf"}, {"$complex": [re, im]}, {"$set": [...]} sorted by text, {"$size":
// [...]}, {"$dtype": name}, {"$tensor": {"dtype", "shape", "nbytes"}}, {"$dict": [[k, v]...], "$class": name}
// for mappings that are no dict or have keys that are no text or start with "$"; {"$device": text}, {"$path":
// text}, {"$slice": [...]}, {"$range": [...]}, {"$storage": key}, {"$object": "module name", "state": ...},
// {"$global": "module name"}, {"$opaque": "module name"}. Throws FormatError kTooLarge beyond max_nodes or
// 1000 nested containers, which is also where a cycle ends.
std::string to_json(const Value& value, const JsonOptions& options);
std::string to_json(const Value& value, bool nested_pickles = false, int64_t max_nodes = 1'000'000);

// Whether `bytes` (of a kBytes value) look like a whole pickle: PROTO 2 to 5 at the start, STOP at the very
// end.
bool looks_like_pickle(std::string_view bytes);

inline bool Value::as_bool() const {
  assert(kind() == Kind::kBool);
  return integer_ != 0;
}

inline int64_t Value::as_int() const {
  assert(kind() == Kind::kInt || kind() == Kind::kBool);
  return integer_;
}

inline double Value::as_double() const {
  assert(kind() == Kind::kFloat);
  return real_;
}

}  // namespace milepost::pickle
