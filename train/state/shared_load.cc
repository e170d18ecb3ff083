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

// A group, and what it shares.
struct Share {
  Share(const LoadPlan& plan, const SharedPieces& shared, Group& of_ranks)
      : stream(plan, shared.pieces), group(of_ranks) {
    const int64_t all = std::min(kWindowBytes, stream.size()), ranks = group.size();
    constexpr int64_t kUnit = PieceStream::kAlignment;
    stretch = std::max(kUnit, (all / ranks + kUnit - 1) / kUnit * kUnit);
  }
  int64_t sent_bytes() const { return stretch + kTrailerBytes; }
  std::vector<PieceStream::Stretch> stretches(int64_t begin, int64_t index) const {
    const int64_t from = std::min(stream.size(), begin + index * stretch);
    return stream.stretches(from, std::min(stream.size(), from + stretch));
  }

  PieceStream stream;
  Group& group;
  int64_t stretch = 0;
};

struct Buffers {
  at::Tensor send, receive;
  PendingPtr pending;
};

}  // namespace

// Once the first collective has begun, a failure is remembered instead of thrown: the other ranks wait for
// this one.
class SharedLoad::Work {
 public:
  Work(LoadPlan& plan, const std::vector<SharedPieces>& shared, ProcessGroups* groups) : plan_(plan) {
    std::vector<bool> is_shared(plan_.pieces().size());
    int64_t sent = 0, received = 0;
    for (const SharedPieces& pieces : shared) {
      for (const size_t piece : pieces.pieces) is_shared[piece] = true;
      shares_.emplace_back(plan_, pieces, groups->group(pieces.dimension));
      sent = std::max(sent, shares_.back().sent_bytes());
      received = std::max(received, shares_.back().sent_bytes() * shares_.back().group.size());
    }
    for (size_t i = 0; i < is_shared.size(); ++i) {
      const LoadPlan::Piece& piece = plan_.pieces()[i];
      if (!is_shared[i]) alone_.push_back({i, piece.begin, piece.end});
    }
    for (Buffers& buffers : buffers_) {
      buffers.send = at::zeros({sent}, at::kByte);
      buffers.receive = at::empty({received}, at::kByte);
    }
  }

  SharedLoadReport carry_out() {
    attempt([&] { plan_.read(alone_); });
    for (Share& share : shares_) run_rounds(share);
    if (failure_) std::rethrow_exception(failure_);
    report_.bytes_read = plan_.report().bytes_read;
    return report_;
  }

 private:
  template <typename Action>
  void attempt(const Action& action) {
    if (failure_) return;
    try {
      action();
    } catch (const std::exception& error) {
      failure_ = std::current_exception();
      failure_text_ = error.what();
    }
  }

  void run_rounds(Share& share) {
    const int64_t window = share.stretch * share.group.size();
    int64_t round = 0;
    bool is_sound = true;
    for (int64_t begin = 0; begin < share.stream.size() && is_sound; begin += window, ++round) {
      start(share, begin, buffers_[static_cast<size_t>(round % 2)]);
      if (round > 0) is_sound = finish(share, begin - window, buffers_[static_cast<size_t>((round - 1) % 2)]);
    }
    if (!finish(share, (round - 1) * window, buffers_[static_cast<size_t>((round - 1) % 2)]))
      is_sound = false;
    if (!is_sound) tell_failures(share.group);
  }

  void start(Share& share, int64_t begin, Buffers& buffers) {
    auto* const send = static_cast<std::byte*>(buffers.send.data_ptr());
    attempt([&] {
      std::vector<LoadPlan::Read> reads;
      for (const PieceStream::Stretch& part : share.stretches(begin, share.group.index())) {
        reads.push_back({part.piece, part.begin, part.end, send + part.place});
      }
      plan_.read(reads);
    });
    send[share.stretch] = std::byte(failure_ != nullptr);
    const int64_t bytes = share.sent_bytes();
    buffers.pending = share.group.all_gather(buffers.receive.narrow(0, 0, bytes * share.group.size()),
                                             buffers.send.narrow(0, 0, bytes));
  }

  // Whether no rank had failed when it sent.
  bool finish(Share& share, int64_t begin, Buffers& buffers) {
    buffers.pending->wait();
    const auto* received = static_cast<const std::byte*>(buffers.receive.const_data_ptr());
    bool is_sound = true;
    for (int64_t rank = 0; rank < share.group.size(); ++rank, received += share.sent_bytes()) {
      if (received[share.stretch] != std::byte(0)) {
        is_sound = false;
        continue;
      }
      attempt([&] { take(share, begin, rank, received); });
    }
    return is_sound;
  }

  void take(const Share& share, int64_t begin, int64_t rank, const std::byte* received) {
    for (const PieceStream::Stretch& part : share.stretches(begin, rank)) {
      const LoadPlan::Piece& piece = plan_.pieces()[part.piece];
      const int64_t size = plan_.memory_size(piece), bytes = (part.end - part.begin) * size;
      std::byte* const into = plan_.targets()[static_cast<size_t>(piece.target)].data;
      std::memcpy(into + part.begin * size, received + part.place, static_cast<size_t>(bytes));
      if (rank != share.group.index()) report_.bytes_received += bytes;
    }
  }

  void tell_failures(Group& group) {
    const std::vector<std::string> texts = all_gather_strings(group, failure_ ? "-" + failure_text_ : "+");
    if (failure_) return;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].starts_with('+')) continue;
      failure_text_ = fmt::format("rank {} failed: {}", group.ranks()[i], texts[i].substr(1));
      failure_ = std::make_exception_ptr(CommunicationError(failure_text_));
      return;
    }
  }

  LoadPlan& plan_;
  std::vector<LoadPlan::Read> alone_;
  std::vector<Share> shares_;
  std::array<Buffers, 2> buffers_;
  std::exception_ptr failure_;
  std::string failure_text_;
  SharedLoadReport report_;
};

SharedLoad::SharedLoad(LoadPlan& plan, const std::vector<SharedPieces>& shared, ProcessGroups* groups)
    : work_(std::make_unique<Work>(plan, shared, groups)) {}
SharedLoad::~SharedLoad() = default;

SharedLoadReport SharedLoad::carry_out() { return work_->carry_out(); }

}  // namespace milepost::train
