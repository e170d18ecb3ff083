#include <limits>
#include <map>
#include <unordered_map>

#include "format/pickle_arena.h"

namespace milepost::pickle {
namespace {

constexpr int kMaxCopyDepth = 2000;

// Copies values into an arena. Lists, dicts and objects are known before their content is copied, so cycles
// end.
class Copier {
 public:
  Copier(Arena* arena, const Builder::RenameStorage& rename) : arena_(arena), rename_(rename) {}

  Value copy(const Value& v) {
    const Identity identity = identity_of(v);
    switch (v.kind()) {
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kFloat:
      case Kind::kDType:
        return v;
      default:
        break;
    }
    if (const auto found = done_.find(identity); found != done_.end()) return found->second;
    if (++depth_ > kMaxCopyDepth) {
      throw FormatError(ErrorCode::kTooLarge, "containers nest more than 2000 deep");
    }
    const Value made = make(v, identity);
    --depth_;
    return done_.try_emplace(identity, made).first->second;
  }

 private:
  Value make(const Value& v, const Identity& identity) {
    const Kind kind = v.kind();
    if (is_tuple_like(kind)) return make_tuple(v);
    switch (kind) {
      case Kind::kList:
      case Kind::kSet:
      case Kind::kDict:
        return make_list(v, identity);
      case Kind::kObject:
        return make_object(v, identity);
      case Kind::kTensor:
        return make_tensor(v);
      case Kind::kStorage: {
        auto* storage = arena_->make<StorageBody>();
        *storage = *Layout::storage(v);
        storage->key = storage_key(storage->key);
        return Layout::with_body(kind, storage);
      }
      case Kind::kGlobal:
      case Kind::kOpaque:
        return Layout::with_body(kind, copy_global(Layout::global(v)));
      default:
        return Layout::text(kind, arena_->copy_text(v.text()), Layout::detail(v));
    }
  }

  Value make_tuple(const Value& v) {
    Value* const items = arena_->take_items(v.size());
    for (int64_t i = 0; i < v.size(); ++i) items[i] = copy(v.item(i));
    return Layout::tuple(v.kind(), items, v.size());
  }

  Value make_list(const Value& v, const Identity& identity) {
    const bool is_dict = v.kind() == Kind::kDict;
    auto* const body = is_dict ? arena_->make<DictBody>() : arena_->make<ListBody>();
    const Value made = Layout::with_body(v.kind(), body);
    done_.emplace(identity, made);
    const Children kids = children(v);
    arena_->reserve(body, kids.items.size());
    for (const Value& item : kids.items) {
      const Value copied = copy(item);
      body->items[body->size++] = copied;
    }
    if (!is_dict || kids.factory == nullptr) return made;
    auto* const extra = arena_->make<DictExtra>();
    Layout::dict(made)->extra = extra;
    extra->type = Layout::dict(v)->extra->type;
    extra->factory = copy(*kids.factory);
    if (kids.attributes != nullptr) {
      extra->attributes = copy(*kids.attributes);
      extra->has_attributes = true;
    }
    return made;
  }

  Value make_object(const Value& v, const Identity& identity) {
    auto* const body = arena_->make<ObjectBody>();
    body->type = Layout::object(v)->type;
    const Value made = Layout::with_body(Kind::kObject, body);
    done_.emplace(identity, made);
    if (v.state() != nullptr) {
      body->state = copy(*v.state());
      body->has_state = true;
    }
    return made;
  }

  Value make_tensor(const Value& v) {
    TensorRef ref = v.tensor();
    ref.storage_key = storage_key(ref.storage_key);
    return Layout::with_body(Kind::kTensor, arena_->add_tensor(std::move(ref)));
  }

  std::string_view storage_key(std::string_view key) {
    return arena_->copy_text(rename_ ? std::string_view(rename_(key)) : key);
  }

  // Entries of the fixed table stay; those that a document made are copied.
  const Global* copy_global(const Global* global) {
    if (global->role != Role::kUnknown && global->role != Role::kStorageClass) return global;
    auto* const made = arena_->make<Global>();
    *made = *global;
    made->text = arena_->copy_text(global->text);
    return made;
  }

  Arena* arena_;
  const Builder::RenameStorage& rename_;
  std::unordered_map<Identity, Value, IdentityHash> done_;
  int depth_ = 0;
};

}  // namespace

struct Builder::State {
  std::unique_ptr<Arena> arena = std::make_unique<Arena>(std::numeric_limits<int64_t>::max());
  std::map<std::pair<Kind, std::string_view>, const Value*> texts;

  const Value* node(const Value& value) {
    auto* const place = arena->make<Value>();
    *place = value;
    return place;
  }
  const Value* text(Kind kind, std::string_view content) {
    if (const auto found = texts.find({kind, content}); found != texts.end()) return found->second;
    const Value value = Layout::text(kind, arena->copy_text(content));
    return texts[{kind, value.text()}] = node(value);
  }
  void fill(ListBody* body, std::span<const Value* const> items) {
    arena->reserve(body, items.size());
    for (const Value* item : items) body->items[body->size++] = *item;
  }
};

Builder::Builder() : state_(std::make_unique<State>()) {}
Builder::~Builder() = default;

const Value* Builder::none() { return state_->node(Value()); }
const Value* Builder::boolean(bool v) { return state_->node(Layout::boolean(v)); }
const Value* Builder::integer(int64_t v) { return state_->node(Layout::integer(v)); }
const Value* Builder::floating(double v) { return state_->node(Layout::floating(v)); }
const Value* Builder::string(std::string_view v) { return state_->text(Kind::kString, v); }
const Value* Builder::bytes(std::string_view v) { return state_->text(Kind::kBytes, v); }

const Value* Builder::list(std::span<const Value* const> items) {
  auto* const body = state_->arena->make<ListBody>();
  state_->fill(body, items);
  return state_->node(Layout::with_body(Kind::kList, body));
}

const Value* Builder::tuple(std::span<const Value* const> items) {
  const auto count = static_cast<int64_t>(items.size());
  Value* const copies = state_->arena->take_items(count);
  for (size_t i = 0; i < items.size(); ++i) copies[i] = *items[i];
  return state_->node(Layout::tuple(Kind::kTuple, copies, count));
}

const Value* Builder::dict(std::span<const Value* const> keys_and_values, std::string_view class_name) {
  assert(keys_and_values.size() % 2 == 0);
  auto* const body = state_->arena->make<DictBody>();
  state_->fill(body, keys_and_values);
  if (!class_name.empty()) {
    const size_t space = class_name.find(' ');
    assert(space != std::string_view::npos);
    body->extra = state_->arena->make<DictExtra>();
    body->extra->type = find_global(class_name.substr(0, space), class_name.substr(space + 1));
    assert(body->extra->type != nullptr);
  }
  return state_->node(Layout::with_body(Kind::kDict, body));
}

const Value* Builder::tensor(const TensorRef& ref) {
  TensorRef own = ref;
  own.storage_key = state_->text(Kind::kString, ref.storage_key)->text();
  return state_->node(Layout::with_body(Kind::kTensor, state_->arena->add_tensor(std::move(own))));
}

const Value* Builder::copy(const Value& value, const RenameStorage& rename_storage) {
  return state_->node(Copier(state_->arena.get(), rename_storage).copy(value));
}

Document Builder::finish(const Value* root) {
  state_->arena->root = *root;
  return Document(std::move(state_->arena));
}

}  // namespace milepost::pickle
