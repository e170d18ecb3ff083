// What the classes and functions of the fixed table mean when a pickle names, calls or fills them. Nothing is
// executed: each case checks its arguments and makes a value.
#include <utility>

#include "format/pickle_machine.h"
#include "format/pickle_text.h"

namespace milepost::pickle {
namespace {

// "module.name" as the reader knows it from Python, safe to print.
std::string dotted(std::string_view module, std::string_view name) {
  return printable(module) + "." + printable(name);
}
std::string dotted(const Global& global) { return dotted(global.module(), global.name()); }

[[noreturn]] void fail_arguments(const Global& global) {
  fail_bad("the arguments of " + dotted(global) + " are not what a pickler writes");
}

bool is_text(const Value& v) { return v.kind() == Kind::kString; }

// The values of a list, tuple or set.
bool is_sequence(const Value& v) {
  return v.kind() == Kind::kList || v.kind() == Kind::kTuple || v.kind() == Kind::kSet ||
         v.kind() == Kind::kFrozenSet;
}

// "cpu", "cuda:0": a word, then perhaps a colon and a short number.
bool is_device(std::string_view text) {
  const std::string_view type = text.substr(0, text.find(':'));
  if (type.empty() || type.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") != std::string_view::npos)
    return false;
  if (type.size() == text.size()) return true;
  const std::string_view index = text.substr(type.size() + 1);
  return !index.empty() && index.size() <= 5 &&
         index.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

Value Machine::make_opaque(std::string_view module, std::string_view name) {
  auto* global = arena_->make<Global>();
  const std::string text = std::string(module) + " " + std::string(name);
  global->text = arena_->copy_text(text);
  global->module_length = module.size();
  return Layout::with_body(Kind::kOpaque, global);
}

Value Machine::resolve(std::string_view module, std::string_view name) {
  const Global* global = find_global(module, name);
  if (global != nullptr && allows(global->profiles, options_.profile)) {
    return Layout::with_body(Kind::kGlobal, global);
  }
  const auto torch_name = options_.profile == Profile::kPlain ? std::nullopt : find_torch_name(module, name);
  if (torch_name && torch_name->role == Role::kDTypeName) return Layout::dtype(torch_name->dtype);
  if (torch_name && options_.profile == Profile::kTorchSave) {
    const Value value = make_opaque(module, name);
    auto* made = const_cast<Global*>(Layout::global(value));
    made->role = Role::kStorageClass;
    made->detail = static_cast<uint8_t>(torch_name->dtype);
    return Layout::with_body(Kind::kGlobal, made);
  }
  if (!is_utf8(module) || !is_utf8(name)) fail_bad("the name of a class is not UTF-8");
  if (options_.keep_unknown_globals) return make_opaque(module, name);
  fail(ErrorCode::kRefusedGlobal,
       "the pickle names " + dotted(module, name) + ", which is not on the list of what is read",
       "nothing was executed; if the file comes from a trusted place, load it with Python and save plain "
       "values");
}

Value Machine::resolve_cached(const Value& module, const Value& name) {
  if (!is_text(module) || !is_text(name)) fail_bad("the name of a class is no text");
  const void* const module_at = Layout::address(module);
  const void* const name_at = Layout::address(name);
  ResolvedName& slot = resolved_[(reinterpret_cast<uintptr_t>(name_at) >> 3) % resolved_.size()];
  // Texts stay where they are while the machine runs, so equal addresses and lengths are equal texts.
  if (slot.module != module_at || slot.name != name_at || module.text().empty() || name.text().empty()) {
    slot = {module_at, name_at, resolve(module.text(), name.text())};
  }
  return slot.value;
}

Value Machine::make_object(const Global* type, const Value* state) {
  auto* body = arena_->make<ObjectBody>();
  body->type = type;
  if (state != nullptr) {
    body->state = *state;
    body->has_state = true;
  }
  return Layout::with_body(Kind::kObject, body);
}

Value Machine::new_object(const Value& type, const Value& args) {
  if (type.kind() == Kind::kGlobal && Layout::global(type)->role == Role::kRecord) {
    if (args.kind() != Kind::kTuple || args.size() != 0) fail_arguments(*Layout::global(type));
    return make_object(Layout::global(type), nullptr);
  }
  return call(type, args);
}

Value Machine::call(const Value& callable, const Value& args_tuple) {
  if (args_tuple.kind() != Kind::kTuple) fail_bad("the arguments of a call are no tuple");
  if (callable.kind() == Kind::kOpaque) return callable;
  if (callable.kind() != Kind::kGlobal) fail_bad("something that is no class or function is called");
  const Global& global = *Layout::global(callable);
  const auto args = children(args_tuple).items;
  switch (global.role) {
    case Role::kShown:
      return make_object(&global, &args_tuple);
    case Role::kEnum:
      if (args.size() != 1 || args[0].kind() != Kind::kInt) fail_arguments(global);
      return make_object(&global, &args_tuple);
    case Role::kSize:
      if (args.size() != 1 || (args[0].kind() != Kind::kTuple && args[0].kind() != Kind::kList))
        fail_arguments(global);
      for (const Value& v : children(args[0]).items) {
        if (v.kind() != Kind::kInt) fail_arguments(global);
      }
      return make_tuple(Kind::kSize, children(args[0]).items);
    case Role::kLayout:
      if (args.size() != 1 || !is_text(args[0])) fail_arguments(global);
      return args[0];
    case Role::kReconstructor:
      return call_reconstructor(args);
    case Role::kPath:
      return call_path(global, args);
    case Role::kDevice:
      return call_device(args);
    case Role::kTensorV2:
      return rebuild_tensor(args, false);
    case Role::kTensorV3:
      return rebuild_tensor(args, true);
    case Role::kParameter:
      return rebuild_parameter(args, 3);
    case Role::kParameterWithState:
      return rebuild_parameter(args, 4);
    case Role::kEncode:
      return call_encode(args);
    case Role::kBytes:
      return call_bytes(Kind::kBytes, args);
    case Role::kByteArray:
      return call_bytes(Kind::kByteArray, args);
    case Role::kComplex:
      return call_complex(args);
    case Role::kOrderedDict:
    case Role::kDefaultDict:
    case Role::kCounter:
    case Role::kSet:
    case Role::kFrozenSet:
    case Role::kSlice:
    case Role::kRange:
      return call_container(global, args);
    default:
      break;
  }
  fail(ErrorCode::kRefusedGlobal,
       "the pickle calls " + dotted(global) + ", which may be named but not called");
}

Value Machine::call_reconstructor(std::span<const Value> args) {
  // object is named as the base class by everything that has no state of a builtin type.
  const bool plain = args.size() == 3 && args[2].is_none() &&
                     (args[1].kind() == Kind::kGlobal && Layout::global(args[1])->name() == "object");
  if (args.size() == 3 && args[0].kind() == Kind::kOpaque) return args[0];
  if (!plain) fail_bad("the arguments of copyreg._reconstructor are not what a pickler writes");
  return new_object(args[0], Layout::tuple(Kind::kTuple, nullptr, 0));
}

Value Machine::call_container(const Global& global, std::span<const Value> args) {
  switch (global.role) {
    case Role::kSlice:
      if (args.size() != 3) fail_arguments(global);
      return make_tuple(Kind::kSlice, args);
    case Role::kRange:
      if (args.size() != 3) fail_arguments(global);
      for (const Value& v : args) {
        if (v.kind() != Kind::kInt && v.kind() != Kind::kBigInt) fail_arguments(global);
      }
      return make_tuple(Kind::kRange, args);
    case Role::kSet:
    case Role::kFrozenSet: {
      if (args.size() > 1 || (args.size() == 1 && !is_sequence(args[0]))) fail_arguments(global);
      const auto items = args.empty() ? std::span<const Value>() : children(args[0]).items;
      return global.role == Role::kSet ? make_list(Kind::kSet, items) : make_frozen_set(items);
    }
    case Role::kDefaultDict: {
      if (args.size() > 1) fail_arguments(global);
      const Value dict = make_dict({}, &global);
      if (args.size() == 1) Layout::dict(dict)->extra->factory = args[0];
      return dict;
    }
    default:
      break;
  }
  // OrderedDict and Counter: of nothing, of a dict, or of pairs (Python 2).
  const Value dict = make_dict({}, &global);
  if (args.empty()) return dict;
  if (args.size() != 1) fail_arguments(global);
  if (args[0].kind() == Kind::kDict) {
    set_items(dict, children(args[0]).items);
    return dict;
  }
  if (!is_sequence(args[0])) fail_arguments(global);
  for (const Value& pair : children(args[0]).items) {
    if ((pair.kind() != Kind::kList && pair.kind() != Kind::kTuple) || pair.size() != 2)
      fail_arguments(global);
    set_items(dict, children(pair).items);
  }
  return dict;
}

Value Machine::latin1(Kind kind, const Value& text, const Value& encoding) {
  if (!is_text(text) || !is_text(encoding)) fail_bad("bytes are not given as a text and its encoding");
  if (encoding.text() != "latin1" && encoding.text() != "latin-1") {
    fail(ErrorCode::kUnsupported,
         "bytes given in the encoding '" + printable(encoding.text(), 40) + "' (latin1 is read)");
  }
  const auto bytes = latin1_bytes(text.text());
  if (!bytes) fail_bad("a text that stands for bytes holds a character above U+00FF");
  return Layout::text(kind, arena_->copy_text(*bytes));
}

Value Machine::call_encode(std::span<const Value> args) {
  if (args.size() != 2) fail_bad("the arguments of _codecs.encode are not what a pickler writes");
  return latin1(Kind::kBytes, args[0], args[1]);
}

Value Machine::call_bytes(Kind kind, std::span<const Value> args) {
  if (args.empty()) return Layout::text(kind, "");
  if (args.size() == 2) return latin1(kind, args[0], args[1]);
  if (args.size() == 1 && args[0].kind() == Kind::kBytes)
    return Layout::text(kind, arena_->copy_text(args[0].text()));
  if (args.size() != 1 || args[0].kind() != Kind::kList) fail_bad("bytes are made from something unknown");
  std::string bytes;
  for (const Value& v : children(args[0]).items) {
    if (v.kind() != Kind::kInt || v.as_int() < 0 || v.as_int() > 255)
      fail_bad("bytes are made from something unknown");
    bytes.push_back(static_cast<char>(v.as_int()));
  }
  return Layout::text(kind, arena_->copy_text(bytes));
}

Value Machine::call_complex(std::span<const Value> args) {
  if (args.size() != 2 || args[0].kind() != Kind::kFloat || args[1].kind() != Kind::kFloat) {
    fail_bad("a complex number is not made from two floats");
  }
  return make_tuple(Kind::kComplex, args);
}

Value Machine::call_path(const Global& global, std::span<const Value> args) {
  const auto style = static_cast<PathStyle>(global.detail);
  const char separator = style == PathStyle::kWindows || style == PathStyle::kPureWindows ? '\\' : '/';
  std::string joined;
  for (const Value& part : args) {
    if (!is_text(part)) fail_arguments(global);
    if (!joined.empty() && joined.back() != separator) joined.push_back(separator);
    joined += part.text();
  }
  if (joined.empty()) joined = ".";
  return Layout::text(Kind::kPath, arena_->copy_text(joined), global.detail);
}

Value Machine::call_device(std::span<const Value> args) {
  const bool good = (args.size() == 1 || args.size() == 2) && is_text(args[0]) &&
                    (args.size() == 1 || (args[1].kind() == Kind::kInt && args[1].as_int() >= 0));
  if (!good) fail_bad("the arguments of torch.device are not what a pickler writes");
  std::string text(args[0].text());
  if (args.size() == 2) text += ":" + std::to_string(args[1].as_int());
  if (!is_device(text)) fail_bad("'" + printable(text, 40) + "' is no device");
  return Layout::text(Kind::kDevice, arena_->copy_text(text));
}

void Machine::build(const Value& object, const Value& state) {
  if (object.kind() == Kind::kOpaque) return;
  if (object.kind() == Kind::kDict && Layout::dict(object)->extra != nullptr) {
    DictExtra* const extra = Layout::dict(object)->extra;
    extra->attributes = state;
    extra->has_attributes = true;
    return;
  }
  if (object.kind() != Kind::kObject) fail_bad("a state is given to something that takes none");
  ObjectBody* const body = Layout::object(object);
  if (body->type->role == Role::kShown) {
    const auto args = children(body->state).items;
    std::vector<Value> all(args.begin(), args.end());
    all.push_back(state);
    body->state = make_tuple(Kind::kTuple, all);
    return;
  }
  const bool good = state.kind() == Kind::kDict || state.kind() == Kind::kTuple || state.is_none();
  if (!good || body->type->role != Role::kRecord)
    fail_bad("the state of a " + dotted(*body->type) + " is no dict or tuple");
  body->state = state;
  body->has_state = true;
}

}  // namespace milepost::pickle
