#include "engine/resume.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "milepost/base/error.h"

namespace milepost {
namespace {

[[noreturn]] void refuse_resume(const std::string& path, const std::string& what_differs) {
  ValueError error(
      "cannot resume: " + what_differs,
      "give the source and options of then, or start again without resume, which removes what was "
      "written");
  error.set_path(path);
  throw error;
}

}  // namespace

int64_t take_up(Storage& storage, StagedOutput& staged, bool single_file, const OutputSet& output,
                const std::string& path, Journal& journal, ConvertReport* report) {
  std::vector<int64_t> sizes;
  std::set<std::string> names;
  for (const OutputFile& file : output.files) {
    sizes.push_back(file.image->size());
    names.insert(file.image->name());
  }
  switch (journal.read(sizes)) {
    case Journal::Found::kOtherSource:
      refuse_resume(
          path,
          "the source is not what it was when this conversion was interrupted (names, sizes or times "
          "of its files)");
    case Journal::Found::kOtherPlan:
      refuse_resume(path,
                    "the options are not those of the interrupted conversion, or this version of the program "
                    "writes something else");
    case Journal::Found::kNothing:
      staged.discard_leftovers();
      report->warnings.push_back("there was nothing to resume: started from the beginning");
      return 0;
    case Journal::Found::kRecords:
      break;
  }
  if (single_file) return storage.stat(staged.path())->size_bytes;
  int64_t held = 0;
  for (const FileInfo& info : storage.list(staged.path())) {
    if (names.contains(info.name)) {
      held += info.size_bytes;
    } else {
      storage.remove_tree(join_path(staged.path(), info.name));
    }
  }
  return held;
}

namespace {

// Whether somebody would rather go on than start again. Other errors would come again, or throw doubt on what
// is there.
bool is_interruption(const Error& error) {
  return error.code() == ErrorCode::kIo || error.code() == ErrorCode::kNoSpace;
}

void add_hint(Error& error, std::string_view hint) {
  Error changed(error.code(), error.summary(),
                error.hint().empty() ? std::string(hint) : fmt::format("{}; {}", error.hint(), hint));
  changed.set_path(error.path()).set_key(error.key()).set_offset(error.offset());
  changed.set_error_number(error.error_number());
  error = changed;
}

}  // namespace

void mention_leftovers(Storage& storage, const StagedOutput& staged, Error& error) {
  try {
    if (!storage.stat(staged.journal_path())) return;
  } catch (const Error&) {
    return;
  }
  add_hint(error, "what was written is kept: resume to continue, or start again without, which removes it");
}

void keep_or_remove(Storage& storage, StagedOutput& staged, Journal& journal, bool resume, Error& error) {
  const bool keeps = resume || (journal.is_worth_keeping() && is_interruption(error));
  staged.keep_when_abandoned(keeps);
  if (!keeps) return;
  try {
    journal.flush();
  } catch (const Error&) {  // what it holds already has to do
  }
  mention_leftovers(storage, staged, error);
}

}  // namespace milepost
