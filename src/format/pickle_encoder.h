// Writes values as protocol 2. Only the files of `pickle` include this.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/pickle_arena.h"
#include "format/pickle_opcodes.h"
#include "milepost/base/bytes.h"

namespace milepost::pickle {

class Encoder {
 public:
  explicit Encoder(ByteSink& sink) : sink_(sink) {}

  void run(const Value& root) {
    op(kOpProto);
    byte(2);
    write(root);
    op(kOpStop);
    flush();
  }

 private:
  static constexpr size_t kFlushBytes = 1 << 16;

  // ---- bytes ----
  void byte(uint8_t b) { out_.push_back(static_cast<char>(b)); }
  void op(Opcode opcode) { byte(opcode); }
  void little(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) byte(static_cast<uint8_t>(value >> 8 * i));
  }
  void flush() {
    sink_.append(milepost::as_bytes(out_));
    out_.clear();
  }

  // ---- memo ----
  void get(uint32_t number) {
    op(number < 256 ? kOpBinGet : kOpLongBinGet);
    little(number, number < 256 ? 1 : 4);
  }
  uint32_t put() {
    const uint32_t number = next_number_++;
    op(number < 256 ? kOpBinPut : kOpLongBinPut);
    little(number, number < 256 ? 1 : 4);
    return number;
  }
  void put(const Identity& identity) { memo_[identity] = put(); }
  bool written(const Identity& identity) {
    const auto found = memo_.find(identity);
    if (found == memo_.end()) return false;
    get(found->second);
    return true;
  }
  bool is_written(const Identity& identity) const { return memo_.contains(identity); }

  // ---- values ----
  void write(const Value& v);
  void write_kind(const Value& v);
  void write_integer(int64_t x);
  void write_float(double x);
  void write_big(std::string_view decimal);
  void write_text(std::string_view text, const void* address);  // nullptr: written here only
  void write_text(const Value& v) { write_text(v.text(), Layout::address(v)); }
  void write_tuple(const Value& v);
  void close_tuple(size_t count);
  void write_list(const Value& v);
  void write_list_items(std::span<const Value> items);
  void write_dict(const Value& v);
  void write_pairs(std::span<const Value> keys_and_values, bool counted);
  void write_pair_batch(std::span<const Value> keys_and_values);
  void write_global(std::string_view module, std::string_view name);
  void write_call_of_items(std::string_view name, const Value& v);
  void write_set(const Value& v);
  void write_size(const Value& v);
  void write_bytes(const Value& v);
  void write_encoded(std::string_view bytes);
  void write_device(const Value& v);
  void write_path(const Value& v);
  void write_object(const Value& v);
  void end_call(const Identity& identity);

  // ---- tensors ----
  void write_dtype(DType dtype) { write_global("torch", dtype_name(dtype)); }
  void write_storage(std::string_view key, std::string_view storage_class, int64_t size);
  void write_dims(const std::vector<int64_t>& dims);
  void write_empty_ordered_dict();
  void write_tensor(const TensorRef& ref);
  void write_tensor_data(const TensorRef& ref, bool requires_grad);
  void write_view_bits(const TensorRef& ref);

  ByteSink& sink_;
  std::string out_;
  std::unordered_map<Identity, uint32_t, IdentityHash> memo_;
  std::unordered_map<std::string, uint32_t> globals_, storage_keys_;
  uint32_t next_number_ = 0;
  int depth_ = 0;
};

}  // namespace milepost::pickle
