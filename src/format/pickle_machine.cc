// How a pickle is read:
//
// 1. A pickle is a sequence of opcodes, a byte each, some with an argument: binary, or in protocols 0 and 1 a
//    line of text. They build values on a stack; STOP ends it and the value on top is the result.
// 2. MARK remembers the height of the stack; TUPLE, APPENDS, SETITEMS and others take all values above the
//    last mark. Lists and dicts are pushed empty and filled afterwards, so they can hold themselves.
// 3. PUT and MEMOIZE give the value on top a number, GET pushes it again: that is how sharing is kept.
//    MEMOIZE numbers by counting, PUT carries its number.
// 4. Objects: GLOBAL and STACK_GLOBAL push a class or function by name, REDUCE calls it with a tuple, NEWOBJ
//    makes an instance, BUILD gives it its state. Here a name is looked up in a table and a call is a case of
//    a switch (pickle_calls.cc).
// 5. Frames are hints for buffering and are skipped. A newer protocol only adds opcodes: all of them are
//    known whatever PROTO says, as in Python.
// 6. At the end repeated keys of dicts are dropped, since keys can change until then (pickle_finish.cc).
#include "format/pickle_machine.h"

#include <bit>
#include <cstring>

#include "format/pickle_opcodes.h"
#include "format/pickle_text.h"

namespace milepost::pickle {

Document Machine::run(std::string_view name) {
  try {
    run_opcodes();
    arena_->bytes_read = next_ - begin_;
    finish_tree(arena_->root, options_.max_depth, &work_);
  } catch (Error& error) {
    error.set_path(name).set_offset(opcode_ - begin_);
    throw;
  }
  return Document(std::move(arena_));
}

void Machine::run_opcodes() {
  for (;;) {
    opcode_ = next_;
    const uint8_t opcode = number<uint8_t>();
    switch (opcode) {
      case kOpStop:
        arena_->root = pop();
        return;
      case kOpMark:
        push_mark();
        break;
      case kOpNone:
        push(Value());
        break;
      case kOpNewTrue:
        push(Layout::boolean(true));
        break;
      case kOpNewFalse:
        push(Layout::boolean(false));
        break;
      case kOpBinInt:
        push(Layout::integer(number<int32_t>()));
        break;
      case kOpBinInt1:
        push(Layout::integer(number<uint8_t>()));
        break;
      case kOpBinInt2:
        push(Layout::integer(number<uint16_t>()));
        break;
      case kOpLong1:
        push_long(number<uint8_t>());
        break;
      case kOpBinFloat: {
        const uint64_t bits = __builtin_bswap64(number<uint64_t>());
        push(Layout::floating(std::bit_cast<double>(bits)));
        break;
      }
      case kOpShortBinUnicode:
        push_string(take(number<uint8_t>()));
        break;
      case kOpBinUnicode:
        push_string(take(number<uint32_t>()));
        break;
      case kOpEmptyTuple:
        push(Layout::tuple(Kind::kTuple, nullptr, 0));
        break;
      case kOpTuple1:
        push_tuple(1);
        break;
      case kOpTuple2:
        push_tuple(2);
        break;
      case kOpTuple3:
        push_tuple(3);
        break;
      case kOpTuple:
        push_tuple(stack_.size() - pop_mark());
        break;
      case kOpEmptyList:
        push(make_list(Kind::kList, {}));
        break;
      case kOpEmptyDict:
        push(make_dict({}, nullptr));
        break;
      case kOpAppend: {
        const Value item = pop();
        append(top(), {&item, 1});
        break;
      }
      case kOpAppends: {
        const size_t first = pop_mark();
        const auto items = above(first);
        if (first <= floor_) fail_bad("the list to append to is missing");
        append(stack_[first - 1], items);
        stack_.resize(first);
        break;
      }
      case kOpSetItem:
      case kOpSetItems: {
        if (opcode == kOpSetItem && stack_.size() - floor_ < 3)
          fail_bad("the stack holds no dict, key and value");
        const size_t first = opcode == kOpSetItem ? stack_.size() - 2 : pop_mark();
        if (first <= floor_) fail_bad("the dict to fill is missing");
        set_items(stack_[first - 1], above(first));
        stack_.resize(first);
        break;
      }
      case kOpBinPut:
        memo_.put(number<uint8_t>(), top());
        break;
      case kOpLongBinPut:
        memo_.put(number<uint32_t>(), top());
        break;
      case kOpMemoize:
        memo_.put(memo_.count(), top());
        break;
      case kOpBinGet:
        push(memo_.get(number<uint8_t>()));
        break;
      case kOpLongBinGet:
        push(memo_.get(number<uint32_t>()));
        break;
      case kOpStackGlobal: {
        const Value global_name = pop(), module = pop();
        push(resolve_cached(module, global_name));
        break;
      }
      case kOpReduce: {
        const Value args = pop();
        top() = call(top(), args);
        break;
      }
      case kOpNewObj: {
        const Value args = pop();
        top() = new_object(top(), args);
        break;
      }
      case kOpBuild: {
        const Value state = pop();
        build(top(), state);
        break;
      }
      default:
        if (!run_uncommon(opcode)) {
          static constexpr char kHex[] = "0123456789abcdef";
          fail_bad(std::string("0x") + kHex[opcode >> 4] + kHex[opcode & 15] + " is no opcode");
        }
    }
  }
}

bool Machine::run_uncommon(uint8_t opcode) {
  switch (opcode) {
    case kOpProto: {
      const auto protocol = number<uint8_t>();
      if (protocol > 5)
        fail(ErrorCode::kUnsupported, "pickle protocol " + std::to_string(protocol) + " (0 to 5 are read)");
      return true;
    }
    case kOpFrame:
      take(8);
      return true;
    case kOpPop:
      pop_one();
      return true;
    case kOpPopMark:
      stack_.resize(pop_mark());
      return true;
    case kOpDup:
      push(Value(top()));
      return true;
    case kOpGlobal: {
      const std::string_view module = line();
      push(resolve(module, line()));
      return true;
    }
    case kOpLong4:
      push_long(number<uint32_t>());
      return true;
    case kOpShortBinBytes:
      push_bytes(Kind::kBytes, take(number<uint8_t>()));
      return true;
    case kOpBinBytes:
      push_bytes(Kind::kBytes, take(number<uint32_t>()));
      return true;
    case kOpBinBytes8:
      push_bytes(Kind::kBytes, take(number<uint64_t>()));
      return true;
    case kOpByteArray8:
      push_bytes(Kind::kByteArray, take(number<uint64_t>()));
      return true;
    case kOpBinUnicode8:
      push_string(take(number<uint64_t>()));
      return true;
    case kOpEmptySet:
      push(make_list(Kind::kSet, {}));
      return true;
    case kOpAddItems: {
      const size_t first = pop_mark();
      if (first <= floor_) fail_bad("the set to fill is missing");
      add_to_set(stack_[first - 1], above(first));
      stack_.resize(first);
      return true;
    }
    case kOpFrozenSet: {
      const size_t first = pop_mark();
      const Value set = make_frozen_set(above(first));
      stack_.resize(first);
      push(set);
      return true;
    }
    case kOpBinPersId:
      top() = persistent(top());
      return true;
    case kOpNewObjEx: {
      const Value keywords = pop(), args = pop();
      if (keywords.kind() != Kind::kDict || keywords.size() != 0) {
        fail(ErrorCode::kUnsupported, "an object made with keyword arguments");
      }
      top() = new_object(top(), args);
      return true;
    }
    case kOpObj: {
      const size_t first = pop_mark();
      if (first == stack_.size()) fail_bad("an object without a class");
      const Value args = make_tuple(Kind::kTuple, above(first + 1));
      const Value object = new_object(stack_[first], args);
      stack_.resize(first);
      push(object);
      return true;
    }
    default:
      return run_text_opcode(opcode) || run_refused(opcode);
  }
}

bool Machine::run_text_opcode(uint8_t opcode) {
  switch (opcode) {
    case kOpInt:
      push_int_line();
      return true;
    case kOpLong: {
      std::string_view text = line();
      if (text.ends_with('L')) text.remove_suffix(1);
      push_long_text(text);
      return true;
    }
    case kOpFloat:
      push_float_line();
      return true;
    case kOpString: {
      const auto text = unquote(line());
      if (!text) fail_bad("a string literal is not closed, or has a bad escape");
      push_native_string(*text);
      return true;
    }
    case kOpShortBinString:
      push_native_string(take(number<uint8_t>()));
      return true;
    case kOpBinString:
      push_native_string(take(number<uint32_t>()));
      return true;
    case kOpUnicode: {
      const auto text = raw_unicode_unescape(line());
      if (!text) fail_bad("a text has a bad \\u escape");
      push_string(*text);
      return true;
    }
    case kOpPut:
      memo_.put(decimal_line(), top());
      return true;
    case kOpGet:
      push(memo_.get(decimal_line()));
      return true;
    case kOpList: {
      const size_t first = pop_mark();
      const Value list = make_list(Kind::kList, above(first));
      stack_.resize(first);
      push(list);
      return true;
    }
    case kOpDict: {
      const size_t first = pop_mark();
      const Value dict = make_dict(above(first), nullptr);
      stack_.resize(first);
      push(dict);
      return true;
    }
    default:
      return false;
  }
}

bool Machine::run_refused(uint8_t opcode) {
  switch (opcode) {
    case kOpInst: {
      const std::string_view module = line();
      const Value type = resolve(module, line());
      if (type.kind() != Kind::kOpaque) fail(ErrorCode::kUnsupported, "an instance of a Python 2 class");
      stack_.resize(pop_mark());
      push(type);
      return true;
    }
    case kOpPersId:
      fail(ErrorCode::kUnsupported, "a persistent id that is a text: '" + printable(line(), 40) + "'");
    case kOpExt1:
    case kOpExt2:
    case kOpExt4:
      fail(ErrorCode::kUnsupported, "an extension code stands for a class that only its writer knows");
    case kOpNextBuffer:
    case kOpReadonlyBuffer:
      fail(ErrorCode::kUnsupported, "data outside the pickle (an out-of-band buffer)");
    default:
      return false;
  }
}

Document read(Bytes bytes, const Options& options, std::string_view name) {
  return Machine(bytes, options).run(name);
}

bool looks_like_pickle(std::string_view bytes) {
  return bytes.size() >= 3 && bytes[0] == static_cast<char>(kOpProto) && bytes[1] >= 2 && bytes[1] <= 5 &&
         bytes.back() == static_cast<char>(kOpStop);
}

}  // namespace milepost::pickle
