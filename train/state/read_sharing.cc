// Wants as bytes: whether ranks of one host share ("1" or "0"), the host's name, then for every target its
// tensor, dtype and box; texts and records are preceded by their lengths, all numbers are of varying length
// (LEB128). Equal records are equal wants.
#include "train/state/read_sharing.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

#include "milepost/base/error.h"

namespace milepost::train {
namespace {

// Groups in which ranks may share, those of many ranks first.
constexpr std::array<std::string_view, 10> kDimensions = {
    "world", "loss", "batch", "fsdp", "dp_replicate", "dp_shard", "efsdp", "ep", "cp", "tp"};

void put_number(int64_t value, std::string* out) {
  auto rest = static_cast<uint64_t>(value);
  for (; rest >= 0x80; rest >>= 7) out->push_back(static_cast<char>(rest | 0x80));
  out->push_back(static_cast<char>(rest));
}

void put_text(std::string_view text, std::string* out) {
  put_number(static_cast<int64_t>(text.size()), out);
  out->append(text);
}

[[noreturn]] void refuse() {
  throw FormatError(ErrorCode::kBadFormat, "what a rank says of its load cannot be read",
                    "start all ranks from the same build");
}

std::string_view take_text(std::string_view* bytes) {
  uint64_t size = 0;
  for (int shift = 0;; shift += 7) {
    if (bytes->empty() || shift > 56) refuse();
    const auto byte = static_cast<uint8_t>(bytes->front());
    bytes->remove_prefix(1);
    size |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  if (size > bytes->size()) refuse();
  const std::string_view text = bytes->substr(0, size);
  bytes->remove_prefix(size);
  return text;
}

std::string record_of(const LoadPlan::Piece& piece, const LoadTarget& target) {
  std::string record;
  put_number(piece.tensor, &record);
  put_number(static_cast<int64_t>(target.dtype), &record);
  for (const int64_t offset : target.box.offsets) put_number(offset, &record);
  for (const int64_t size : target.box.sizes) put_number(size, &record);
  return record;
}

// The target of each record, and where its pieces come in the order. Targets that are not read in pieces, or
// want what another target of this rank wants, are left out.
std::map<std::string, int64_t> targets_by_record(const LoadPlan& plan) {
  std::map<std::string, int64_t> targets;
  for (const LoadPlan::Piece& piece : plan.pieces()) {
    if (piece.begin != 0 || piece.end < 0) continue;
    targets.emplace(record_of(piece, plan.targets()[static_cast<size_t>(piece.target)]), piece.target);
  }
  return targets;
}

struct Place {
  std::vector<std::string_view> hosts;
  const DeviceMesh& mesh;

  std::vector<int64_t> group(int64_t rank, std::string_view dimension) const {
    if (dimension != "world") return DeviceMesh(mesh.degrees(), rank).group(dimension);
    std::vector<int64_t> all(hosts.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    return all;
  }
  bool spans_hosts(const std::vector<int64_t>& ranks) const {
    return std::any_of(ranks.begin(), ranks.end(), [&](int64_t rank) {
      return hosts[static_cast<size_t>(rank)] != hosts[static_cast<size_t>(ranks[0])];
    });
  }
  // The first dimension in which the groups of all of `ranks` lie within `ranks`; "" where none does. A
  // question that all of them answer alike.
  std::string_view dimension_within(const std::vector<int64_t>& ranks) const {
    std::string_view best;
    size_t best_size = 1;
    for (const std::string_view dimension : kDimensions) {
      size_t size = 0;
      const bool fits = std::all_of(ranks.begin(), ranks.end(), [&](int64_t rank) {
        const std::vector<int64_t> members = group(rank, dimension);
        size = members.size();
        return std::includes(ranks.begin(), ranks.end(), members.begin(), members.end());
      });
      if (fits && size > best_size) {
        best = dimension;
        best_size = size;
      }
    }
    return best;
  }
};

}  // namespace

std::string describe_wants(const LoadPlan& plan, const std::string& host, bool on_one_host) {
  std::string wants = on_one_host ? "1" : "0";
  put_text(host, &wants);
  for (const auto& [record, target] : targets_by_record(plan)) put_text(record, &wants);
  return wants;
}

std::vector<SharedPieces> share_reads(const LoadPlan& plan, const std::vector<std::string>& wants,
                                      const DeviceMesh& mesh) {
  const std::map<std::string, int64_t> own = targets_by_record(plan);
  std::unordered_map<std::string_view, std::vector<int64_t>> ranks_of;
  for (const auto& [record, target] : own) ranks_of[record];
  Place place{{}, mesh};
  for (size_t rank = 0; rank < wants.size(); ++rank) {
    if (wants[rank].empty()) refuse();
    std::string_view rest = std::string_view(wants[rank]).substr(1);
    place.hosts.push_back(take_text(&rest));
    while (!rest.empty()) {
      const auto found = ranks_of.find(take_text(&rest));
      if (found != ranks_of.end()) found->second.push_back(static_cast<int64_t>(rank));
    }
  }
  std::map<std::vector<int64_t>, std::string_view> dimensions;
  std::map<int64_t, std::string_view> dimension_of_target;
  for (const auto& [record, target] : own) {
    const std::vector<int64_t>& ranks = ranks_of[record];
    auto [found, is_new] = dimensions.try_emplace(ranks);
    if (is_new) {
      found->second = place.dimension_within(ranks);
      const bool is_worth_it =
          wants[0][0] == '1' ||
          (!found->second.empty() && place.spans_hosts(place.group(mesh.rank(), found->second)));
      if (!is_worth_it) found->second = {};
    }
    if (!found->second.empty()) dimension_of_target[target] = found->second;
  }
  std::vector<SharedPieces> shared;
  for (const std::string_view dimension : kDimensions) {
    SharedPieces pieces{std::string(dimension), {}};
    for (size_t i = 0; i < plan.pieces().size(); ++i) {
      const auto found = dimension_of_target.find(plan.pieces()[i].target);
      if (found != dimension_of_target.end() && found->second == dimension) pieces.pieces.push_back(i);
    }
    if (!pieces.pieces.empty()) shared.push_back(std::move(pieces));
  }
  return shared;
}

PieceStream::PieceStream(const LoadPlan& plan, const std::vector<size_t>& pieces)
    : plan_(&plan), pieces_(pieces), offsets_{0} {
  for (const size_t index : pieces_) {
    const LoadPlan::Piece& piece = plan.pieces()[index];
    const int64_t bytes = (piece.end - piece.begin) * plan.memory_size(piece);
    offsets_.push_back(offsets_.back() + (bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
}

std::vector<PieceStream::Stretch> PieceStream::stretches(int64_t begin, int64_t end) const {
  std::vector<Stretch> out;
  const auto after = std::upper_bound(offsets_.begin(), offsets_.end(), begin);
  for (size_t i = static_cast<size_t>(after - offsets_.begin()) - 1; i < pieces_.size(); ++i) {
    if (offsets_[i] >= end) break;
    const LoadPlan::Piece& piece = plan_->pieces()[pieces_[i]];
    const int64_t size = plan_->memory_size(piece);
    const int64_t from = std::max<int64_t>(0, begin - offsets_[i]) / size;
    const int64_t to = std::min(piece.end - piece.begin, (end - offsets_[i]) / size);
    if (from < to) {
      out.push_back({pieces_[i], piece.begin + from, piece.begin + to, offsets_[i] + from * size - begin});
    }
  }
  return out;
}

}  // namespace milepost::train
