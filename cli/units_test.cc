#include "units.h"

#include <gtest/gtest.h>

namespace milepost::cli {
namespace {

TEST(Units, ReadsDecimalAndBinarySizes) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_bytes("5gb"), 5'000'000'000);
  EXPECT_EQ(parse_bytes("5G"), 5'000'000'000);
  EXPECT_EQ(parse_bytes("128MiB"), int64_t{128} << 20);
  EXPECT_EQ(parse_bytes("1.5 GiB"), int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("64k"), 64'000);
  EXPECT_EQ(parse_bytes("7 B"), 7);
  EXPECT_EQ(parse_bytes("9223372036854775807"), INT64_MAX);
}

TEST(Units, RefusesWhatIsNoSize) {
  for (const char* text : {"", "lots", "GB", "-1", "-0", "1e3", "5 GBs", "5 X", "nan", "inf", "1,5GB",
                           "9223372036854775808", "99999999TB", "0x10", "5GB ", " 5GB"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

TEST(Units, FlagTextReadsBack) {
  for (int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1024}, int64_t{5'000'000'000},
                        int64_t{128} << 20, int64_t{1'000'001}}) {
    EXPECT_EQ(parse_bytes(bytes_flag_text(bytes)), bytes);
  }
  EXPECT_EQ(bytes_flag_text(int64_t{128} << 20), "128MiB");
  EXPECT_EQ(bytes_flag_text(5'000'000'000), "5GB");
}

TEST(Units, PrintsSizesWithThreeDigitsOrSo) {
  EXPECT_EQ(bytes_text(0), "0 bytes");
  EXPECT_EQ(bytes_text(1), "1 byte");
  EXPECT_EQ(bytes_text(999), "999 bytes");
  EXPECT_EQ(bytes_text(1500), "1.50 kB");
  EXPECT_EQ(bytes_text(943'700'000), "943.7 MB");
  EXPECT_EQ(bytes_text(999'960), "1.00 MB");
  EXPECT_EQ(bytes_text(8'060'000'000), "8.06 GB");
  EXPECT_EQ(bytes_text(INT64_MAX), "9223.4 PB");
}

TEST(Units, PrintsCounts) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1234567), "1,234,567");
  EXPECT_EQ(count_text(-1234), "-1,234");
  EXPECT_EQ(count_text(-123), "-123");
  EXPECT_EQ(count_text(1, "tensor"), "1 tensor");
  EXPECT_EQ(count_text(2000, "tensor"), "2,000 tensors");
}

TEST(Units, PrintsTimes) {
  EXPECT_EQ(seconds_text(0.021), "0.02 s");
  EXPECT_EQ(seconds_text(12.34), "12.3 s");
  EXPECT_EQ(seconds_text(185), "3 min 05 s");
  EXPECT_EQ(seconds_text(7620), "2 h 07 min");
}

}  // namespace
}  // namespace milepost::cli
