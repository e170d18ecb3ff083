// The fast reader may give up on anything, but what it does read must be what the general reader reads.
#include <gtest/gtest.h>

#include <random>

#include "format/dcp_metadata_compare.h"
#include "format/dcp_metadata_fast.h"
#include "format/dcp_test_files.h"
#include "format/pickle_opcodes.h"
#include "milepost/base/error.h"
#include "milepost/format/dcp.h"

namespace milepost::dcp {
namespace {

using namespace dcp::testing;

// One or two small changes of the kinds that a damaged disk, a bad copy or an attacker makes.
std::string mutate(std::string bytes, std::mt19937_64& random) {
  static constexpr uint8_t kOpcodes[] = {
      pickle::kOpMark,   pickle::kOpStop,     pickle::kOpNone,       pickle::kOpBinInt1,
      pickle::kOpBinInt, pickle::kOpLong1,    pickle::kOpTuple1,     pickle::kOpTuple2,
      pickle::kOpTuple3, pickle::kOpTuple,    pickle::kOpEmptyTuple, pickle::kOpMemoize,
      pickle::kOpBinGet, pickle::kOpReduce,   pickle::kOpBuild,      pickle::kOpSetItem,
      pickle::kOpFrame,  pickle::kOpSetItems, pickle::kOpAppends,    pickle::kOpEmptyDict,
  };
  const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  // Half of the places are arguments of numbers and memo references, where a change is most likely to be
  // taken.
  const auto place = [&] {
    const size_t any = below(bytes.size());
    const size_t opcode = bytes.find_first_of("KMh", any);
    return below(2) == 0 && opcode < bytes.size() - 1 ? opcode + 1 : any;
  };
  const size_t changes = 1 + below(2);
  for (size_t i = 0; i < changes && !bytes.empty(); ++i) {
    const size_t at = place();
    switch (below(7)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random());
        break;
      case 2:  // another number or memo reference
        bytes[at] = static_cast<char>(bytes[at] + (below(2) == 0 ? 1 : -1));
        break;
      case 3:
        bytes[at] = static_cast<char>(kOpcodes[below(std::size(kOpcodes))]);
        break;
      case 4:
        bytes.insert(at, 1, static_cast<char>(kOpcodes[below(std::size(kOpcodes))]));
        break;
      case 5:
        bytes.erase(at, 1 + below(8));
        break;
      default: {  // a piece again, somewhere else
        const std::string piece = bytes.substr(at, 1 + below(40));
        bytes.insert(below(bytes.size()), piece);
      }
    }
  }
  return bytes;
}

// "" when the readers agree.
std::string disagreement(const std::string& bytes) {
  const MemorySource source(as_bytes(bytes), "mutated");
  const std::optional<Metadata> fast = read_metadata_fast(source);
  try {
    const Metadata general = read_metadata_general(source);
    return fast ? metadata_difference(*fast, general) : "";
  } catch (const FormatError& error) {
    return fast ? std::string("only the fast reader takes it: ") + error.what() : "";
  }
}

TEST(DcpMetadataMutation, FastReaderAgreesWithTheGeneralOne) {
  std::mt19937_64 random(20240607);
  int64_t read_fast = 0;
  for (const auto& path : good_metadata_files()) {
    const std::string original = file_content(path);
    if (original.size() > 20'000) continue;  // for the time that the general reader takes
    for (int i = 0; i < 300; ++i) {
      const std::string bytes = mutate(original, random);
      ASSERT_EQ(disagreement(bytes), "") << path << ", mutation " << i;
      read_fast += read_metadata_fast(MemorySource(as_bytes(bytes), "")).has_value();
    }
  }
  EXPECT_GT(read_fast, 200);  // otherwise the test would show nothing
}

TEST(DcpMetadataMutation, EveryTruncationIsRefused) {
  const std::string original = file_content(test_data("dcp/nested/ckpt/.metadata"));
  for (size_t length = 0; length < original.size(); ++length) {
    const std::string bytes = original.substr(0, length);
    const MemorySource source(as_bytes(bytes), "cut");
    ASSERT_FALSE(read_metadata_fast(source)) << length;
    ASSERT_THROW(read_metadata(source), FormatError) << length;
  }
}

}  // namespace
}  // namespace milepost::dcp
