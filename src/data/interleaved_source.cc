#include <cmath>

#include "milepost/base/checksum.h"
#include "milepost/base/error.h"
#include "milepost/data/numpy_random.h"
#include "milepost/data/token_source.h"

namespace milepost::data {
namespace {

constexpr size_t kMaxSources = 256;
constexpr int64_t kMaxOversampling = 64;

// Where each source stands while the order is drawn.
class Exhaustion {
 public:
  explicit Exhaustion(size_t num_sources) : at_(num_sources), is_through_(num_sources) {}

  int64_t advance(size_t source, int64_t size) {
    const int64_t document = at_[source]++;
    if (at_[source] < size) return document;
    at_[source] = 0;
    if (!is_through_[source]) ++num_through_;
    is_through_[source] = true;
    return document;
  }
  size_t num_through() const { return num_through_; }

 private:
  std::vector<int64_t> at_;
  std::vector<bool> is_through_;
  size_t num_through_ = 0;
};

void check_sources(const std::vector<std::unique_ptr<TokenSource>>& sources,
                   const std::vector<double>& weights) {
  if (sources.empty() || sources.size() > kMaxSources || sources.size() != weights.size()) {
    throw ValueError("interleaving takes 1 to " + std::to_string(kMaxSources) +
                     " sources with a weight each, got " + std::to_string(sources.size()) + " and " +
                     std::to_string(weights.size()) + " weights");
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::string name = "source " + std::to_string(i);
    if (!std::isfinite(weights[i]) || weights[i] <= 0) {
      throw ValueError(name + " has weight " + std::to_string(weights[i]) + ", expected a positive number",
                       "leave sources out that are not to be read");
    }
    if (sources[i]->size() == 0) throw ValueError(name + " has no documents");
  }
}

}  // namespace

InterleavedSource::InterleavedSource(std::vector<std::unique_ptr<TokenSource>> sources,
                                     const std::vector<double>& weights, uint64_t seed,
                                     StoppingStrategy strategy)
    : sources_(std::move(sources)) {
  check_sources(sources_, weights);
  int64_t num_documents = 0;
  std::string identity =
      "interleaved " + std::to_string(seed) + " " + std::to_string(static_cast<int>(strategy)) + "\n";
  for (size_t i = 0; i < sources_.size(); ++i) {
    num_documents += sources_[i]->size();
    identity += sources_[i]->fingerprint() + " " + std::to_string(weights[i]) + "\n";
  }
  fingerprint_ = to_hex(sha256(as_bytes(identity))).substr(0, 32);

  const size_t wanted = strategy == StoppingStrategy::kOnFirstExhausted ? 1 : sources_.size();
  WeightedChoice choice(seed, weights);
  Exhaustion exhaustion(sources_.size());
  while (exhaustion.num_through() < wanted) {
    const auto source = static_cast<size_t>(choice.next());
    const int64_t document = exhaustion.advance(source, sources_[source]->size());
    order_.push_back({.source = source, .document = static_cast<uint64_t>(document)});
    if (size() / kMaxOversampling > num_documents) {
      throw ValueError("the weights would repeat documents more than " + std::to_string(kMaxOversampling) +
                           " times on average before every source is through",
                       "use weights nearer to the sources' sizes, or stopping strategy on_first_exhausted");
    }
  }
}

void InterleavedSource::append(int64_t document, std::vector<int32_t>* ids) {
  const Choice choice = order_[static_cast<size_t>(document)];
  sources_[choice.source]->append(static_cast<int64_t>(choice.document), ids);
}

std::optional<int64_t> InterleavedSource::count(int64_t document) {
  const Choice choice = order_[static_cast<size_t>(document)];
  return sources_[choice.source]->count(static_cast<int64_t>(choice.document));
}

std::string InterleavedSource::place(int64_t document) const {
  const Choice choice = order_[static_cast<size_t>(document)];
  return sources_[choice.source]->place(static_cast<int64_t>(choice.document));
}

int64_t InterleavedSource::num_skipped() const {
  int64_t sum = 0;
  for (const std::unique_ptr<TokenSource>& source : sources_) sum += source->num_skipped();
  return sum;
}

std::vector<std::string> InterleavedSource::take_warnings() {
  std::vector<std::string> all;
  for (const std::unique_ptr<TokenSource>& source : sources_) {
    for (std::string& warning : source->take_warnings()) all.push_back(std::move(warning));
  }
  return all;
}

}  // namespace milepost::data
