#include "milepost/data/packing.h"

#include <algorithm>
#include <cassert>

namespace milepost::data {
namespace {

void subtract_from_leading_run(std::span<int32_t> positions) {
  if (positions.empty() || positions[0] <= 0) return;
  const int32_t first = positions[0];
  for (int32_t& position : positions) {
    if (position == 0) return;
    position -= first;
  }
}

std::vector<int32_t> tail(const std::vector<int32_t>& from, int64_t start) {
  return {from.begin() + start, from.end()};
}

}  // namespace

Packer::Packer(int64_t seq_len) : seq_len_(seq_len) { assert(seq_len >= 1); }

void Packer::append(std::span<const int32_t> ids) {
  if (ids.size() < 2) return;
  compact();
  buffers_.inputs.insert(buffers_.inputs.end(), ids.begin(), ids.end() - 1);
  buffers_.labels.insert(buffers_.labels.end(), ids.begin() + 1, ids.end());
  const size_t old_size = buffers_.positions.size();
  buffers_.positions.resize(old_size + ids.size() - 1);
  for (size_t i = 0; i + 1 < ids.size(); ++i) buffers_.positions[old_size + i] = static_cast<int32_t>(i);
}

void Packer::take_row(const RowTarget& row) {
  assert(has_row());
  const auto first = [&](const std::vector<int32_t>& from) { return from.begin() + start_; };
  std::copy_n(first(buffers_.inputs), seq_len_, row.inputs);
  std::copy_n(first(buffers_.labels), seq_len_, row.labels);
  std::copy_n(first(buffers_.positions), seq_len_, row.positions);
  if (const int64_t offset = row.positions[0]; offset > 0) {
    for (int64_t i = 0; i < seq_len_ && row.positions[i] != 0; ++i) row.positions[i] -= offset;
  }
  start_ += seq_len_;
}

int64_t Packer::drop(int64_t num_tokens) {
  const int64_t dropped = std::min(num_tokens, held());
  start_ += dropped;
  return dropped;
}

// Moving what is held to the front only when that is the smaller part keeps the cost a token constant.
void Packer::compact() {
  if (start_ == 0 || start_ < held()) return;
  for (std::vector<int32_t>* buffer : {&buffers_.inputs, &buffers_.labels, &buffers_.positions}) {
    buffer->erase(buffer->begin(), buffer->begin() + start_);
  }
  start_ = 0;
}

PackingBuffers Packer::buffers() const {
  return {tail(buffers_.inputs, start_), tail(buffers_.labels, start_), tail(buffers_.positions, start_)};
}

void Packer::set_buffers(PackingBuffers buffers) {
  assert(buffers.inputs.size() == buffers.labels.size() && buffers.inputs.size() == buffers.positions.size());
  buffers_ = std::move(buffers);
  start_ = 0;
}

PackingBuffers join_buffers(std::span<const PackingBuffers> parts) {
  PackingBuffers joined;
  for (const PackingBuffers& part : parts) {
    const size_t start = joined.positions.size();
    joined.inputs.insert(joined.inputs.end(), part.inputs.begin(), part.inputs.end());
    joined.labels.insert(joined.labels.end(), part.labels.begin(), part.labels.end());
    joined.positions.insert(joined.positions.end(), part.positions.begin(), part.positions.end());
    if (start > 0) subtract_from_leading_run(std::span(joined.positions).subspan(start));
  }
  return joined;
}

}  // namespace milepost::data
