#include "value_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace milepost::cli {
namespace {

using pickle::Builder;
using pickle::Value;

std::string nested_pickle() {
  Builder inner;
  const Value* pair[] = {inner.string("epoch"), inner.integer(2)};
  const Value* root = inner.dict(pair);
  const pickle::Document document = inner.finish(root);
  VectorSink sink;
  pickle::write(document.root(), sink);
  return std::string(as_text(sink.data));
}

TEST(ValueTree, ShowsScalarsOnOneLine) {
  Builder builder;
  const Value* items[] = {builder.integer(3), builder.floating(1), builder.boolean(true), builder.none(),
                          builder.string("a\nb\x1b")};
  const Value* root = builder.list(items);
  const pickle::Document document = builder.finish(root);
  EXPECT_EQ(value_tree("x", document.root()), "x: [3, 1.0, True, None, 'a\\nb\\x1b']\n");
}

TEST(ValueTree, IndentsDictsAndListsOfDicts) {
  Builder builder;
  const Value* pair[] = {builder.string("lr"), builder.floating(0.5)};
  const Value* groups[] = {builder.dict(pair), builder.dict(pair)};
  const Value* outer[] = {builder.string("groups"), builder.list(groups)};
  const Value* root = builder.dict(outer);
  const pickle::Document document = builder.finish(root);
  EXPECT_EQ(value_tree("state", document.root()),
            "state: dict of 1 item\n"
            "  groups: list of 2 items\n"
            "    [0]: dict of 1 item\n"
            "      lr: 0.5\n"
            "    [1]: dict of 1 item\n"
            "      lr: 0.5\n");
}

TEST(ValueTree, OpensPicklesInsideBytes) {
  Builder builder;
  const Value* root = builder.bytes(nested_pickle());
  const pickle::Document document = builder.finish(root);
  const std::string text = value_tree("dp_rank_0", document.root());
  EXPECT_THAT(text, testing::HasSubstr("that hold a pickle:\n  pickle: dict of 1 item\n    epoch: 2\n"));
}

TEST(ValueTree, ShowsOtherBytesAsHex) {
  Builder builder;
  const Value* root = builder.bytes(std::string("\x80\x04garbage.", 10));
  const pickle::Document document = builder.finish(root);
  EXPECT_EQ(value_tree("b", document.root()), "b: 10 bytes [80 04 67 61 72 62 61 67 65 2e]\n");
}

TEST(ValueTree, CutsLongLists) {
  Builder builder;
  std::vector<const Value*> items(1000, builder.integer(7));
  const Value* root = builder.tuple(items);
  const pickle::Document document = builder.finish(root);
  const std::string text = value_tree("t", document.root());
  EXPECT_THAT(text, testing::HasSubstr(", ... 1,000 in all)"));
  EXPECT_LT(text.size(), 200u);
}

TEST(ValueTree, EndsAtTheLimitsOfSharedStructure) {
  Builder builder;
  const Value* node = builder.integer(1);
  for (int i = 0; i < 60; ++i) {  // 2^60 nodes when written out
    const Value* both[] = {node, node};
    node = builder.list(both);
  }
  const pickle::Document document = builder.finish(node);
  const std::string text = value_tree("bomb", document.root());
  EXPECT_THAT(text, testing::HasSubstr("(cut at 2000 lines)"));
}

}  // namespace
}  // namespace milepost::cli
