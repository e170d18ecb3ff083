// Meshes, placements and placement tables as people write them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/catalog/layout.h"

namespace milepost {
namespace {

constexpr std::string_view kSpace = " \t\r";

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

[[noreturn]] void refuse_mesh(std::string_view part, std::string_view why) {
  throw ValueError(
      fmt::format("mesh dimension '{}' {}", printable(part), why),
      "write a mesh as NAME=DEGREE,NAME=DEGREE with the slowest dimension first, as in dp_shard=2,tp=2");
}

[[noreturn]] void refuse_placement(std::string_view text, std::string_view why) {
  throw ValueError(fmt::format("placement '{}' {}", printable(text), why),
                   "write Replicate, Shard(DIM) or StridedShard(DIM, SPLIT_FACTOR)");
}

// "name(a, b)" in parts; a name alone has no arguments.
struct Call {
  std::string_view name;
  std::vector<std::string_view> arguments;
};

std::optional<Call> split_call(std::string_view text) {
  const size_t open = text.find('(');
  if (open == std::string_view::npos) return Call{text, {}};
  if (text.back() != ')') return std::nullopt;
  Call call{trim(text.substr(0, open)), {}};
  std::string_view inside = trim(text.substr(open + 1, text.size() - open - 2));
  while (!inside.empty()) {
    const size_t comma = std::min(inside.find(','), inside.size());
    call.arguments.push_back(trim(inside.substr(0, comma)));
    if (comma == inside.size()) return call;
    inside.remove_prefix(comma + 1);
    if (trim(inside).empty()) return std::nullopt;
  }
  return call;
}

// The number in "N" or "KEYWORD=N", when it is 0 or more and at most `limit`.
std::optional<int64_t> parse_argument(std::string_view text, std::initializer_list<std::string_view> keywords,
                                      int64_t limit) {
  if (const size_t equals = text.find('='); equals != std::string_view::npos) {
    const std::string_view keyword = trim(text.substr(0, equals));
    if (std::find(keywords.begin(), keywords.end(), keyword) == keywords.end()) return std::nullopt;
    text = trim(text.substr(equals + 1));
  }
  int64_t number = -1;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{} || end != text.data() + text.size() || number < 0 || number > limit)
    return std::nullopt;
  return number;
}

// Splits a line at spaces outside parentheses.
std::vector<std::string_view> split_words(std::string_view line) {
  std::vector<std::string_view> words;
  size_t at = 0;
  while ((at = line.find_first_not_of(kSpace, at)) != std::string_view::npos) {
    const size_t begin = at;
    for (int depth = 0; at < line.size(); ++at) {
      const char c = line[at];
      if (depth <= 0 && kSpace.find(c) != std::string_view::npos) break;
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    words.push_back(line.substr(begin, at - begin));
  }
  return words;
}

[[noreturn]] void refuse_line(int64_t number, const std::string& what) {
  throw ValueError(fmt::format("line {} of the placement table: {}", number, what),
                   "write one rule a line, GLOB PLACEMENT..., with one placement for each mesh dimension");
}

PlacementRule parse_rule(std::string_view line, int64_t number, const Mesh& mesh) {
  const std::vector<std::string_view> words = split_words(line);
  PlacementRule rule{std::string(words[0]), {}};
  if (words.size() - 1 != mesh.sizes.size()) {
    refuse_line(number, fmt::format("{} placements for a mesh of {} dimensions", words.size() - 1,
                                    mesh.sizes.size()));
  }
  for (size_t i = 1; i < words.size(); ++i) {
    try {
      rule.placements.push_back(Placement::parse(words[i]));
    } catch (const ValueError& error) {
      refuse_line(number, error.summary());
    }
  }
  return rule;
}

}  // namespace

Mesh Mesh::parse(std::string_view text) {
  Mesh mesh;
  int64_t ranks = 1;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view part = trim(text.substr(at, comma - at));
    at = comma + 1;
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) refuse_mesh(part, "has no '=' between name and degree");
    const std::string_view name = trim(part.substr(0, equals)), digits = trim(part.substr(equals + 1));
    if (name.empty()) refuse_mesh(part, "has no name");
    if (std::find(mesh.names.begin(), mesh.names.end(), name) != mesh.names.end()) {
      refuse_mesh(part, "repeats a name");
    }
    int64_t degree = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), degree);
    if (status != std::errc{} || end != digits.data() + digits.size() || degree < 1) {
      refuse_mesh(part, "has no degree of 1 or more");
    }
    if (!checked_mul(ranks, degree, &ranks) || ranks > kMaxRanks) {
      refuse_mesh(part, fmt::format("makes more than {} ranks", kMaxRanks));
    }
    mesh.names.emplace_back(name);
    mesh.sizes.push_back(degree);
  }
  return mesh;
}

Placement Placement::parse(std::string_view text) {
  const std::optional<Call> call = split_call(trim(text));
  if (!call) refuse_placement(text, "is not closed properly");
  const auto dim_of = [&](std::string_view argument) {
    const std::optional<int64_t> number = parse_argument(argument, {"dim"}, kMaxDims - 1);
    if (!number) refuse_placement(text, fmt::format("has no tensor dimension from 0 to {}", kMaxDims - 1));
    return static_cast<int>(*number);
  };
  if (call->name == "Replicate" || call->name == "R") {
    if (!call->arguments.empty()) refuse_placement(text, "takes no arguments");
    return replicate();
  }
  if (call->name == "Shard" || call->name == "S") {
    if (call->arguments.size() != 1) refuse_placement(text, "needs one argument, the tensor dimension");
    return shard(dim_of(call->arguments[0]));
  }
  if (call->name == "StridedShard" || call->name == "_StridedShard") {
    if (call->arguments.size() != 2)
      refuse_placement(text, "needs two arguments, the tensor dimension and the split factor");
    const int cut_dim = dim_of(call->arguments[0]);
    const auto factor = parse_argument(call->arguments[1], {"sf", "split_factor"}, kMaxRanks);
    if (!factor || *factor < 1)
      refuse_placement(text, fmt::format("has no split factor from 1 to {}", kMaxRanks));
    return strided_shard(cut_dim, *factor);
  }
  refuse_placement(text, "is none that a checkpoint can hold");
}

std::string placement_text(const Placement& placement) {
  switch (placement.kind) {
    case Placement::Kind::kShard:
      return fmt::format("Shard({})", placement.dim);
    case Placement::Kind::kStridedShard:
      return fmt::format("StridedShard({}, {})", placement.dim, placement.split_factor);
    case Placement::Kind::kReplicate:
      break;
  }
  return "Replicate";
}

std::vector<PlacementRule> parse_placement_rules(std::string_view text, const Mesh& mesh) {
  std::vector<PlacementRule> rules;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    line = trim(line.substr(0, line.find('#')));
    if (!line.empty()) rules.push_back(parse_rule(line, number, mesh));
  }
  return rules;
}

std::vector<Placement> placements_for(std::string_view name, const std::vector<PlacementRule>& rules,
                                      const Mesh& mesh) {
  for (const PlacementRule& rule : rules) {
    if (glob_match(rule.glob, name)) return rule.placements;
  }
  return std::vector<Placement>(mesh.sizes.size(), Placement::replicate());
}

}  // namespace milepost
