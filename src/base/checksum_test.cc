#include "milepost/base/checksum.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/sha256_kernel.h"

namespace milepost {
namespace {

ByteVector random_bytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  ByteVector bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

uint32_t zlib_crc32(Bytes bytes) {
  return static_cast<uint32_t>(
      ::crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

Sha256Digest openssl_sha256(Bytes bytes) {
  Sha256 stream(Sha256Backend::kOpenSsl);
  stream.update(bytes);
  return stream.finish();
}

std::string hex_of(std::string_view text) { return to_hex(sha256(as_bytes(text))); }

TEST(Crc32, EqualsTheStandardCheckValue) {
  EXPECT_EQ(crc32(0, as_bytes("123456789")), 0xcbf43926u);
  EXPECT_EQ(crc32(0, {}), 0u);
}

TEST(Crc32, EqualsZlibAtEveryShortLengthAndAlignment) {
  const ByteVector bytes = random_bytes(1200, 1);
  for (size_t offset = 0; offset < 17; ++offset) {
    for (size_t length = 0; length < 600; ++length) {
      const Bytes part = Bytes(bytes).subspan(offset, length);
      ASSERT_EQ(crc32(0, part), zlib_crc32(part)) << offset << " " << length;
    }
  }
}

TEST(Crc32, ContinuesOverChunks) {
  const ByteVector bytes = random_bytes(300000, 2);
  std::mt19937_64 random(3);
  for (int round = 0; round < 20; ++round) {
    uint32_t crc = 0;
    for (size_t at = 0; at < bytes.size();) {
      const size_t length = std::min<size_t>(random() % 40000, bytes.size() - at);
      crc = crc32(crc, Bytes(bytes).subspan(at, length));
      at += length;
    }
    ASSERT_EQ(crc, zlib_crc32(bytes));
  }
}

TEST(Crc32, CombinesTwoParts) {
  const ByteVector bytes = random_bytes(100000, 4);
  for (size_t cut : {0, 1, 63, 64, 4096, 99999, 100000}) {
    const Bytes a = Bytes(bytes).first(cut), b = Bytes(bytes).subspan(cut);
    EXPECT_EQ(crc32_combine(crc32(0, a), crc32(0, b), static_cast<int64_t>(b.size())), crc32(0, bytes))
        << cut;
  }
}

TEST(Crc32, CombinesLengthsBeyondFourGibibytes) {
  // Zeros after a CRC, in one step of 6 GiB or in two of 3.
  constexpr int64_t kHalf = int64_t{3} << 30;
  const uint32_t crc = crc32(0, as_bytes("milepost"));
  EXPECT_EQ(crc32_combine(crc, 0, 2 * kHalf), crc32_combine(crc32_combine(crc, 0, kHalf), 0, kHalf));
}

TEST(Sha256, EqualsPublishedVectors) {
  EXPECT_EQ(hex_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_of(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, EqualsOpenSslAtEveryLengthAroundTheBlockSize) {
  const ByteVector bytes = random_bytes(600, 5);
  for (size_t length = 0; length <= bytes.size(); ++length) {
    const Bytes part = Bytes(bytes).first(length);
    ASSERT_EQ(sha256(part), openssl_sha256(part)) << length;
  }
}

TEST(Sha256, DoesNotDependOnHowTheInputIsCut) {
  const ByteVector bytes = random_bytes(50000, 6);
  const Sha256Digest expected = openssl_sha256(bytes);
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    for (Sha256Backend backend : {Sha256Backend::kFastest, Sha256Backend::kOpenSsl}) {
      Sha256 stream(backend);
      for (size_t at = 0; at < bytes.size();) {
        const size_t length = std::min<size_t>(random() % (round % 2 == 0 ? 200 : 9000), bytes.size() - at);
        stream.update(Bytes(bytes).subspan(at, length));
        at += length;
      }
      ASSERT_EQ(stream.finish(), expected);
    }
  }
}

TEST(Sha256, MayBeMovedBetweenUpdates) {
  Sha256 first;
  first.update(as_bytes("a"));
  Sha256 second = std::move(first);
  second.update(as_bytes("bc"));
  first = std::move(second);
  EXPECT_EQ(first.finish(), sha256(as_bytes("abc")));
}

class Sha256Many : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Streams, Sha256Many, testing::Range<size_t>(0, 10));

TEST_P(Sha256Many, EqualsSingleStreamsForBlocksOfAnyLength) {
  const size_t count = GetParam();
  std::mt19937_64 random(8 + count);
  for (int round = 0; round < 60; ++round) {
    std::vector<Sha256> streams(count);
    std::vector<ByteVector> contents(count);
    std::vector<Sha256*> pointers;
    for (Sha256& stream : streams) pointers.push_back(&stream);
    for (int turn = 0; turn < 4; ++turn) {
      std::vector<ByteVector> blocks;
      for (size_t i = 0; i < count; ++i) {
        const size_t length = random() % 8 == 0 ? 0 : round % 3 == 0 ? 4096 : random() % 3000;
        blocks.push_back(random_bytes(length, random()));
        contents[i].insert(contents[i].end(), blocks[i].begin(), blocks[i].end());
      }
      sha256_update_many(pointers, std::vector<Bytes>(blocks.begin(), blocks.end()));
    }
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(streams[i].finish(), openssl_sha256(contents[i])) << i;
  }
}

TEST_P(Sha256Many, MixesBackends) {
  const size_t count = GetParam();
  std::vector<Sha256> streams;
  std::vector<Sha256*> pointers;
  std::vector<ByteVector> blocks;
  for (size_t i = 0; i < count; ++i) {
    streams.emplace_back(i % 3 == 1 ? Sha256Backend::kOpenSsl : Sha256Backend::kFastest);
    blocks.push_back(random_bytes(1000 + 777 * i, i));
  }
  for (Sha256& stream : streams) pointers.push_back(&stream);
  sha256_update_many(pointers, std::vector<Bytes>(blocks.begin(), blocks.end()));
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(streams[i].finish(), openssl_sha256(blocks[i]));
}

// The kernels are also run at every count of lanes and blocks, since which one the class takes depends on the
// machine.
TEST(Sha256Kernel, AdvancesEachLaneAlike) {
  if (!sha256_kernel_available()) GTEST_SKIP() << "this processor has no SHA instructions";
  const ByteVector bytes = random_bytes(64 * 64, 9);
  for (int count = 1; count <= kSha256MaxStreams; ++count) {
    for (int64_t num_blocks = 1; num_blocks <= 9; ++num_blocks) {
      std::array<uint32_t, 8> together[kSha256MaxStreams], alone[kSha256MaxStreams];
      Sha256Lane lanes[kSha256MaxStreams];
      for (int i = 0; i < count; ++i) {
        const std::byte* data = bytes.data() + 64 * 9 * i + i;
        together[i].fill(static_cast<uint32_t>(0x9e3779b9 * (i + 1)));
        alone[i] = together[i];
        lanes[i] = {together[i].data(), data};
        Sha256Lane lane{alone[i].data(), data};
        for (int64_t block = 0; block < num_blocks; ++block) sha256_compress(&lane, 1, 1);
      }
      sha256_compress(lanes, count, num_blocks);
      for (int i = 0; i < count; ++i) {
        ASSERT_EQ(together[i], alone[i]) << count << " lanes, " << num_blocks << " blocks";
        ASSERT_EQ(lanes[i].data, bytes.data() + 64 * 9 * i + i + 64 * num_blocks);
      }
    }
  }
}

}  // namespace
}  // namespace milepost
