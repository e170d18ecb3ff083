// Packing: documents' token ids become rows of equal length (spec training, section 3.3).
//
// Of each document all ids but the last are inputs, all but the first are labels, and positions count from 0;
// the three streams are cut into rows of seq_len. A document longer than a row continues in the next one, a
// row may hold the end of one document and the start of another, nothing is padded. In a row that starts
// inside a document the positions of that document are counted from the row's start, so that all are below
// seq_len and every row starts at 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace milepost::data {

// What lies between documents read and rows given out. All three have the same length; positions are those
// within the document, as read.
struct PackingBuffers {
  std::vector<int32_t> inputs, labels, positions;
  bool operator==(const PackingBuffers&) const = default;
};

// Where a row goes: seq_len numbers each.
struct RowTarget {
  int64_t* inputs;
  int64_t* positions;
  int64_t* labels;
};

// Threads: one. Cost: about 1 ns a token; memory: 12 bytes a token held back, which is less than a row and
// one document.
class Packer {
 public:
  explicit Packer(int64_t seq_len);  // >= 1

  // A document's ids; one with fewer than two gives nothing.
  void append(std::span<const int32_t> ids);

  bool has_row() const { return held() >= seq_len_; }
  void take_row(const RowTarget& row);  // requires has_row()
  int64_t drop(int64_t num_tokens);     // as many as are held at most; how many they were

  int64_t held() const { return static_cast<int64_t>(buffers_.inputs.size()) - start_; }  // tokens
  PackingBuffers buffers() const;
  void set_buffers(PackingBuffers buffers);  // requires three equal lengths

 private:
  void compact();

  int64_t seq_len_;
  int64_t start_ = 0;  // of what is still held in buffers_
  PackingBuffers buffers_;
};

// Buffers of several packers, one after another, as one. Each one's first document is counted from 0 then, so
// that what followed a cut row is still told from what lies before it.
PackingBuffers join_buffers(std::span<const PackingBuffers> parts);

}  // namespace milepost::data
