// The pieces that a group shares are one stream (PieceStream). In each round every rank reads its stretch of
// the next window, and an all-gather gives all stretches to all; meanwhile the next round's are read. Behind
// each stretch one byte says whether its rank has failed. A failure ends the rounds of this group on all its
// ranks alike, and is passed on in the other groups.
#include "train/state/shared_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>

#include "train/torch.h"

namespace milepost::train {
namespace {

constexpr int64_t kWindowBytes = 16 << 20;
constexpr int64_t kTrailerBytes = PieceStream::kAlignment;

class SharedLoad {
 public:
  explicit SharedLoad(LoadPlan& plan) : plan_(plan) {}

  void read_alone(const std::vector<SharedPieces>& shared) {
    std::vector<bool> is_shared(plan_.pieces().size());
    for (const SharedPieces& pieces : shared) {
      for (const size_t piece : pieces.pieces) is_shared[piece] = true;
    }
    std::vector<LoadPlan::Read> reads;
    for (size_t i = 0; i < is_shared.size(); ++i) {
      const LoadPlan::Piece& piece = plan_.pieces()[i];
      if (!is_shared[i]) reads.push_back({i, piece.begin, piece.end});
    }
    read(reads);
  }

  void read_together(const SharedPieces& shared, Group& group);

  SharedLoadReport finish() const {
    if (failure_) std::rethrow_exception(failure_);
    return report_;
  }

 private:
  // Remembers a failure instead of throwing it: the other ranks wait for this one.
  void read(const std::vector<LoadPlan::Read>& reads) {
    if (failure_) return;
    try {
      plan_.read(reads);
    } catch (const std::exception& error) {
      failure_ = std::current_exception();
      failure_text_ = error.what();
    }
    for (const LoadPlan::Read& read : reads) {
      const LoadPlan::Piece& piece = plan_.pieces()[read.piece];
      const LoadTarget& target = plan_.targets()[static_cast<size_t>(piece.target)];
      const int64_t count = piece.end < 0 ? target.box.num_elements() : read.end - read.begin;
      report_.bytes_read += count * plan_.stored_size(piece);
    }
  }

  void tell_failures(Group& group) {
    const std::vector<std::string> texts = all_gather_strings(group, failure_text_);
    if (failure_) return;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].empty()) continue;
      failure_text_ = fmt::format("rank {} failed: {}", group.ranks()[i], texts[i]);
      failure_ = std::make_exception_ptr(CommunicationError(failure_text_));
      return;
    }
  }

  LoadPlan& plan_;
  std::exception_ptr failure_;
  std::string failure_text_;
  SharedLoadReport report_;

  friend class Rounds;
};

// The rounds of one group.
class Rounds {
 public:
  Rounds(SharedLoad& load, const SharedPieces& shared, Group& group)
      : load_(load), stream_(load.plan_, shared.pieces), group_(group) {
    const int64_t ranks = group.size(), all = std::min(kWindowBytes, stream_.size());
    constexpr int64_t kUnit = PieceStream::kAlignment;
    stretch_ = std::max(kUnit, (all / ranks + kUnit - 1) / kUnit * kUnit);
    for (Buffers& buffers : buffers_) {
      buffers.send = at::zeros({stretch_ + kTrailerBytes}, at::kByte);
      buffers.receive = at::empty({ranks * (stretch_ + kTrailerBytes)}, at::kByte);
    }
  }

  void run() {
    const int64_t window = stretch_ * group_.size();
    int64_t round = 0;
    bool is_sound = true;
    for (int64_t begin = 0; begin < stream_.size() && is_sound; begin += window, ++round) {
      start(begin, buffers_[static_cast<size_t>(round % 2)]);
      if (round > 0) is_sound = finish(begin - window, buffers_[static_cast<size_t>((round - 1) % 2)]);
    }
    if (!finish((round - 1) * window, buffers_[static_cast<size_t>((round - 1) % 2)])) is_sound = false;
    if (!is_sound) load_.tell_failures(group_);
  }

 private:
  struct Buffers {
    at::Tensor send, receive;
    PendingPtr pending;
  };

  std::vector<PieceStream::Stretch> stretches(int64_t begin, int64_t index) const {
    const int64_t from = std::min(stream_.size(), begin + index * stretch_);
    return stream_.stretches(from, std::min(stream_.size(), from + stretch_));
  }

  void start(int64_t begin, Buffers& buffers) {
    auto* const send = static_cast<std::byte*>(buffers.send.data_ptr());
    std::vector<LoadPlan::Read> reads;
    for (const PieceStream::Stretch& part : stretches(begin, group_.index())) {
      reads.push_back({part.piece, part.begin, part.end, send + part.place});
    }
    load_.read(reads);
    send[stretch_] = std::byte(load_.failure_ != nullptr);
    buffers.pending = group_.all_gather(buffers.receive, buffers.send);
  }

  // Whether no rank has failed.
  bool finish(int64_t begin, Buffers& buffers) {
    buffers.pending->wait();
    const auto* received = static_cast<const std::byte*>(buffers.receive.const_data_ptr());
    bool is_sound = true;
    for (int64_t rank = 0; rank < group_.size(); ++rank, received += stretch_ + kTrailerBytes) {
      if (received[stretch_] != std::byte(0)) {
        is_sound = false;
        continue;
      }
      for (const PieceStream::Stretch& part : stretches(begin, rank)) {
        const LoadPlan::Piece& piece = load_.plan_.pieces()[part.piece];
        const int64_t size = load_.plan_.memory_size(piece), bytes = (part.end - part.begin) * size;
        std::byte* const into = load_.plan_.targets()[static_cast<size_t>(piece.target)].data;
        std::memcpy(into + part.begin * size, received + part.place, static_cast<size_t>(bytes));
        if (rank != group_.index()) load_.report_.bytes_received += bytes;
      }
    }
    return is_sound;
  }

  SharedLoad& load_;
  PieceStream stream_;
  Group& group_;
  int64_t stretch_ = 0;
  std::array<Buffers, 2> buffers_;
};

void SharedLoad::read_together(const SharedPieces& shared, Group& group) {
  Rounds(*this, shared, group).run();
}

}  // namespace

SharedLoadReport carry_out(LoadPlan& plan, const std::vector<SharedPieces>& shared, ProcessGroups* groups) {
  SharedLoad load(plan);
  load.read_alone(shared);
  for (const SharedPieces& pieces : shared) load.read_together(pieces, groups->group(pieces.dimension));
  return load.finish();
}

}  // namespace milepost::train
