#include "format/torch_zip_document.h"

#include <fmt/format.h>

#include "format/zip_error.h"
#include "milepost/base/error.h"
#include "milepost/format/torch_zip.h"

namespace milepost::torch_zip {

pickle::Document read_document(Archive& archive, Bytes bytes, bool keep_unknown_globals) {
  pickle::Options options;
  options.profile = pickle::Profile::kTorchSave;
  options.keep_unknown_globals = keep_unknown_globals;
  const zip::Record& record = archive.pickle_record();
  try {
    return pickle::read(bytes, options, archive.source().name());
  } catch (const FormatError& error) {
    // Offsets in an inflated pickle are no place in the file.
    if (record.method != zip::kStored) throw;
    throw zip::moved(error, record.data_offset);
  }
}

std::string describe(const pickle::Value& value) {
  using pickle::Kind;
  switch (value.kind()) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "an int";
    case Kind::kFloat:
      return "a float";
    case Kind::kComplex:
      return "a complex number";
    case Kind::kString:
      return "a string";
    case Kind::kBytes:
    case Kind::kByteArray:
      return "bytes";
    case Kind::kList:
      return "a list";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kDict:
      return "a dict";
    case Kind::kSet:
    case Kind::kFrozenSet:
      return "a set";
    case Kind::kSize:
      return "a torch.Size";
    case Kind::kDType:
      return "a dtype";
    case Kind::kDevice:
      return "a device";
    case Kind::kPath:
      return "a path";
    case Kind::kSlice:
      return "a slice";
    case Kind::kRange:
      return "a range";
    case Kind::kStorage:
      return "a bare storage";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kObject:
    case Kind::kOpaque:
      return fmt::format("an object of class '{}'", printable(value.class_name()));
    case Kind::kGlobal:
      return fmt::format("the class or function '{}'", printable(value.class_name()));
  }
  return "an unknown value";
}

Object read_object(const ByteSource& item, bool keep_unknown_globals) {
  Archive archive(item);
  ByteVector bytes = archive.read_pickle();
  Object object{read_document(archive, bytes, keep_unknown_globals), {}};
  constexpr std::string_view kData = "data/";
  for (const zip::Record& record : archive.records()) {
    std::string_view name = archive.name_below_top(record);
    if (name.size() > kData.size() && name.starts_with(kData))
      object.storage_keys.emplace_back(name.substr(kData.size()));
  }
  return object;
}

std::shared_ptr<const ByteSource> open_storage(std::shared_ptr<const ByteSource> archive,
                                               std::string_view storage_key) {
  Archive opened(*archive);
  const zip::Record& record = opened.storage(storage_key, -1);
  int64_t offset = record.data_offset, size = record.size;
  return std::make_shared<SliceSource>(std::move(archive), offset, size);
}

}  // namespace milepost::torch_zip
