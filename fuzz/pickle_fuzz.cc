// The pickle machine on any bytes, with each profile, with and without unknown globals. What can be read must
// be showable within limits, and what can be written must read back as the same value.
#include <cstdint>
#include <cstdlib>

#include "milepost/base/error.h"
#include "milepost/format/pickle.h"

namespace {

using namespace milepost;

std::string show(const pickle::Value& value) {
  try {
    return pickle::to_json(value, false, 20'000);
  } catch (const FormatError&) {
    return {};  // too large, or a cycle
  }
}

void check(Bytes bytes, const pickle::Options& options) {
  const pickle::Document document = pickle::read(bytes, options, "fuzz");
  const std::string shown = show(document.root());
  try {
    pickle::to_json(document.root(), true, 20'000);
  } catch (const FormatError&) {
  }
  VectorSink written;
  pickle::Builder builder;
  try {
    pickle::write(document.root(), written);
  } catch (const FormatError&) {
    return;  // opaque values
  }
  // Protocol 2 has bytes and sets as calls, which `.metadata` may not name.
  const bool narrow = options.profile == pickle::Profile::kDcpMetadata;
  if (narrow && options.keep_unknown_globals) return;
  pickle::Options wide = options;
  wide.max_memory_bytes = 64 << 20;
  pickle::Document again;
  try {
    again = pickle::read(written.data, wide, "written");
  } catch (const FormatError& error) {
    if (narrow && error.code() == ErrorCode::kRefusedGlobal) return;
    if (error.code() == ErrorCode::kTooLarge) return;
    abort();
  }
  if (!shown.empty() && show(again.root()) != shown) abort();
  const pickle::Document copied = [&] {
    const pickle::Value* copy = builder.copy(again.root());
    return builder.finish(copy);
  }();
  VectorSink rewritten;
  pickle::write(copied.root(), rewritten);
  if (rewritten.data != written.data) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (int choice = 0; choice < 6; ++choice) {
    pickle::Options options;
    options.profile = static_cast<pickle::Profile>(choice % 3);
    options.keep_unknown_globals = choice >= 3;
    try {
      check({reinterpret_cast<const std::byte*>(data), size}, options);
    } catch (const FormatError&) {
    }
  }
  return 0;
}
