// Every archive that real torch wrote into tests/data/dcp, against the values that were saved.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "format/torch_zip_archive.h"
#include "format/torch_zip_tensor_pickle.h"
#include "format/torch_zip_test_source.h"
#include "milepost/base/error.h"
#include "milepost/format/dcp.h"
#include "milepost/format/torch_zip.h"

namespace milepost::torch_zip {
namespace {

using nlohmann::json;

struct Checkpoint {
  std::string folder;  // where .metadata is
  json keys;
};

std::vector<Checkpoint> checkpoints() {
  std::vector<Checkpoint> found;
  for (const auto& entry : std::filesystem::directory_iterator(test_data("dcp"))) {
    std::ifstream in(entry.path() / "expected.json");
    if (!in) continue;
    json expected = json::parse(in);
    if (expected["format"] != "dcp") continue;
    std::string folder = expected.value("ckpt", "ckpt");
    found.push_back({(entry.path() / folder).string(), expected["keys"]});
  }
  std::sort(found.begin(), found.end(),
            [](const Checkpoint& a, const Checkpoint& b) { return a.folder < b.folder; });
  return found;
}

// The elements of a tensor in order, with the bits of conj applied.
ByteVector gather(Bytes payload, DType dtype, DimsView sizes, const StorageLayout& layout) {
  int64_t width = dtype_size(dtype);
  ByteVector out;
  Dims index(sizes.size(), 0);
  for (int64_t n = num_elements(sizes); n > 0; --n) {
    int64_t element = layout.storage_offset;
    for (size_t d = 0; d < index.size(); ++d) element += index[d] * layout.strides[d];
    Bytes bytes = payload.subspan(static_cast<size_t>(element * width), static_cast<size_t>(width));
    out.insert(out.end(), bytes.begin(), bytes.end());
    if (layout.conj) out.back() ^= std::byte{0x80};
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

template <typename Visit>
void for_each_tensor_item(const Checkpoint& checkpoint, Visit visit) {
  MemorySource metadata(read_file(checkpoint.folder + "/.metadata"), checkpoint.folder);
  Catalog catalog = dcp::read_metadata(metadata).catalog;
  std::vector<std::unique_ptr<CountingSource>> files;
  for (const Catalog::File& file : catalog.files()) {
    files.push_back(
        std::make_unique<CountingSource>(read_file(checkpoint.folder + "/" + file.path), file.path));
  }
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    for (int64_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.num_chunks; ++chunk) {
      const Location& location = catalog.chunk_location(chunk);
      visit(tensor, catalog.chunk_box(tensor, chunk), *files[location.file], location);
    }
  }
}

Bytes window(const CountingSource& file, int64_t offset, int64_t length) {
  return file.bytes().subspan(static_cast<size_t>(offset), static_cast<size_t>(length));
}

TEST(TorchFixtures, TensorItemsResolveToWhatWasSaved) {
  int items = 0, whole = 0;
  for (const Checkpoint& checkpoint : checkpoints()) {
    for_each_tensor_item(
        checkpoint, [&](const auto& tensor, const Box& box, const auto& file, const auto& location) {
          SCOPED_TRACE(checkpoint.folder + " " + tensor.name);
          file.reads = 0;
          TensorItem item = resolve_tensor(file, location.offset, location.length);
          EXPECT_LE(file.reads, 2);
          const json& expected = checkpoint.keys[tensor.name];
          EXPECT_EQ(dtype_name(item.dtype), expected["dtype"]);
          EXPECT_EQ(item.sizes, box.sizes);
          ++items;
          if (box.num_elements() != num_elements(tensor.shape)) return;
          Bytes payload = window(file, location.offset + item.payload_offset, item.payload_bytes);
          EXPECT_EQ(item.crc32, crc32(0, payload));
          ByteVector elements = gather(payload, item.dtype, item.sizes, item.layout);
          EXPECT_EQ(to_hex(sha256(elements)), expected["sha256"]);
          EXPECT_TRUE(!item.row_major || std::ranges::equal(elements, payload));
          ++whole;
        });
  }
  EXPECT_GT(items, 500);
  EXPECT_GT(whole, 300);
}

TEST(TorchFixtures, TensorPicklesMatchWithoutTheMachineAndAlike) {
  int matched = 0, unmatched = 0;
  for (const Checkpoint& checkpoint : checkpoints()) {
    for_each_tensor_item(checkpoint,
                         [&](const auto& tensor, const Box&, const auto& file, const auto& location) {
                           MemorySource item(window(file, location.offset, location.length), tensor.name);
                           Archive archive(item);
                           ByteVector bytes = archive.read_pickle();
                           TensorPickle fast;
                           pickle::Document document = pickle::read(bytes, {}, tensor.name);
                           ASSERT_EQ(document.root().kind(), pickle::Kind::kTensor);
                           const pickle::TensorRef& slow = document.root().tensor();
                           if (!match_tensor_pickle(bytes, &fast)) {
                             EXPECT_TRUE(slow.conj) << tensor.name;
                             ++unmatched;
                             return;
                           }
                           ++matched;
                           EXPECT_EQ(fast.dtype, slow.dtype);
                           EXPECT_EQ(fast.storage_key, slow.storage_key);
                           EXPECT_EQ(fast.storage_bytes, slow.storage_bytes);
                           EXPECT_EQ(fast.storage_offset, slow.storage_offset);
                           EXPECT_EQ(fast.sizes, Dims(slow.sizes.begin(), slow.sizes.end()));
                           EXPECT_EQ(fast.strides, Dims(slow.strides.begin(), slow.strides.end()));
                           EXPECT_FALSE(slow.conj || slow.neg);
                         });
  }
  EXPECT_GT(matched, 500);
  EXPECT_EQ(unmatched, 1) << "the conjugated view of plain_dtypes";
}

TEST(TorchFixtures, OurHeadsAndTailsAreTorchsButForTheId) {
  int compared = 0;
  for (const Checkpoint& checkpoint : checkpoints()) {
    if (checkpoint.folder.find("old_style") != std::string::npos) continue;
    for_each_tensor_item(
        checkpoint, [&](const auto& tensor, const Box&, const auto& file, const auto& location) {
          SCOPED_TRACE(checkpoint.folder + " " + tensor.name);
          TensorItem item = resolve_tensor(file, location.offset, location.length);
          bool torch_shaped = item.row_major && item.layout.strides == row_major_strides(item.sizes);
          if (!torch_shaped) return;
          ByteVector head, tail;
          append_tensor_item_head(head, item.dtype, item.sizes);
          append_tensor_item_tail(tail, item.dtype, item.sizes, item.crc32);
          ASSERT_EQ(static_cast<int64_t>(head.size()), item.payload_offset);
          EXPECT_TRUE(std::ranges::equal(head, window(file, location.offset, item.payload_offset)));
          int64_t tail_start = item.payload_offset + item.payload_bytes;
          Bytes torch_tail = window(file, location.offset + tail_start, location.length - tail_start);
          // Descriptor, version and the local header of the id, up to the length of its padding.
          size_t same = (item.payload_bytes == 0 ? 0 : 16) + 30 + 15 + 4;
          EXPECT_TRUE(std::ranges::equal(Bytes(tail).first(same), torch_tail.first(same)));
          ++compared;
        });
  }
  EXPECT_GT(compared, 500);
}

TEST(TorchFixtures, ObjectItemsRenderToWhatWasSaved) {
  int objects = 0;
  for (const Checkpoint& checkpoint : checkpoints()) {
    MemorySource metadata(read_file(checkpoint.folder + "/.metadata"), checkpoint.folder);
    Catalog catalog = dcp::read_metadata(metadata).catalog;
    std::vector<std::shared_ptr<const ByteSource>> files;
    for (const Catalog::File& file : catalog.files()) {
      files.push_back(
          std::make_shared<MemorySource>(read_file(checkpoint.folder + "/" + file.path), file.path));
    }
    for (const Catalog::Object& object : catalog.objects()) {
      SCOPED_TRACE(checkpoint.folder + " " + object.name);
      const std::shared_ptr<const ByteSource>& file = files[object.location.file];
      auto item = std::make_shared<SliceSource>(file, object.location.offset, object.location.length);
      Object read = read_object(*item, false);
      pickle::JsonOptions options;
      options.tensor_sha256 = [&](const pickle::TensorRef& ref) {
        std::shared_ptr<const ByteSource> storage = open_storage(item, ref.storage_key);
        StorageLayout layout{ref.storage_offset, Dims(ref.strides.begin(), ref.strides.end()), false, false,
                             false};
        ByteVector elements = gather(read_all(*storage, 1 << 20), ref.dtype, ref.sizes, layout);
        return to_hex(sha256(elements));
      };
      json expected = checkpoint.keys[object.name]["json"];
      EXPECT_EQ(json::parse(pickle::to_json(read.document.root(), options)), expected);
      ++objects;
    }
  }
  EXPECT_GT(objects, 500);
}

class TorchSaveFile : public testing::TestWithParam<const char*> {};

TEST_P(TorchSaveFile, FlattensToWhatWasSaved) {
  std::string folder = test_data("dcp/torch_save_files/");
  std::ifstream in(folder + "expected.json");
  // ordered_json: the order of entries is part of the answer.
  nlohmann::ordered_json keys = nlohmann::ordered_json::parse(in)["per_file"][GetParam()];
  CountingSource file(read_file(folder + GetParam()), GetParam());
  PthFile pth = read_pth(file, GetParam());
  EXPECT_TRUE(pth.catalog.has_paths());
  std::vector<std::string_view> names = pth.catalog.names_in_order();
  ASSERT_EQ(names.size(), keys.size());
  size_t next = 0;
  for (const auto& [name, expected] : keys.items()) {
    SCOPED_TRACE(name);
    EXPECT_EQ(names[next++], name);
    json path = json::array();
    for (const PathElement& element : pth.catalog.path(name)) {
      std::visit([&](const auto& value) { path.push_back(value); }, element);
    }
    EXPECT_EQ(path, json(expected["path"]));
    if (expected["kind"] != "tensor") {
      std::optional<int64_t> object = pth.catalog.find_object(name);
      ASSERT_TRUE(object);
      if (expected["json"].dump().find("$tensor") != std::string::npos) continue;
      EXPECT_EQ(json::parse(pickle::to_json(*pth.object_values[static_cast<size_t>(*object)], {})),
                json(expected["json"]));
      continue;
    }
    std::optional<int64_t> index = pth.catalog.find_tensor(name);
    ASSERT_TRUE(index);
    const Catalog::Tensor& tensor = pth.catalog.tensors()[static_cast<size_t>(*index)];
    EXPECT_EQ(dtype_name(tensor.dtype), expected["dtype"]);
    EXPECT_EQ(json(tensor.shape), json(expected["shape"]));
    const Location& location = pth.catalog.chunk_location(tensor.first_chunk);
    StorageLayout layout{0, row_major_strides(tensor.shape), false, false, false};
    if (location.layout != Location::kRowMajor)
      layout = pth.catalog.layouts()[location.layout - Location::kFirstLayout];
    ByteVector elements =
        gather(window(file, location.offset, location.length), tensor.dtype, tensor.shape, layout);
    EXPECT_EQ(to_hex(sha256(elements)), expected["sha256"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, TorchSaveFile,
                         testing::Values("from_dcp.pth", "direct.pt", "direct_nocrc.pt"));

TEST(TorchFixtures, TheLegacyLayoutIsRefusedWithWhatToDo) {
  MemorySource file(read_file(test_data("dcp/torch_save_files/direct_legacy.pt")), "direct_legacy.pt");
  for (int way = 0; way < 3; ++way) {
    try {
      if (way == 0) refuse_legacy(file);
      if (way == 1) read_pth(file, "x");
      if (way == 2) read_object(file, true);
      FAIL();
    } catch (const FormatError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_NE(std::string(error.what()).find("legacy"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("torch.save"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace milepost::torch_zip
