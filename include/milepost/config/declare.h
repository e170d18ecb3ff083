// How a configuration struct is declared: each field once, with its type, name, default, help and marks.
// Flags, help, JSON, files, comparison and docs/configuration.md all follow from that one place.
//
//   MILEPOST_CONFIG(Training, "Batch, length and precision.",
//     (int64_t, steps, 10000, "Optimizer steps of the whole run.")
//     (bool, gc_debug, false, "Looks for cycles at every step.", kFileOnly))
//
// declares `struct Training` with those members and defaults, `==`, its description for Boost.Describe, and
// `notes_of` and `section_help`, which are found by argument-dependent lookup. A default with a comma in it
// goes through a function or constant.
#pragma once

#include <boost/describe.hpp>
#include <boost/preprocessor/seq/enum.hpp>
#include <boost/preprocessor/seq/for_each.hpp>
#include <boost/preprocessor/seq/transform.hpp>
#include <boost/preprocessor/seq/variadic_seq_to_seq.hpp>
#include <span>
#include <string_view>

namespace milepost::config {

// Marks of a field, or-ed together.
enum Mark : unsigned {
  kOurs = 1,      // TorchTitan 0.3.0 has no such field
  kFileOnly = 2,  // no flag: set by the registry, by code, or in a configuration file
};

// What is said about a field beside its type and default.
struct Note {
  std::string_view help;
  unsigned marks = 0;
};

}  // namespace milepost::config

#define MILEPOST_CONFIG_MEMBER_(type, name, value, ...) type name = value;
#define MILEPOST_CONFIG_NAME_(type, name, ...) name
#define MILEPOST_CONFIG_NOTE_(type, name, value, ...) ::milepost::config::Note{__VA_ARGS__},
#define MILEPOST_CONFIG_EACH_MEMBER_(r, data, field) MILEPOST_CONFIG_MEMBER_ field
#define MILEPOST_CONFIG_EACH_NAME_(r, data, field) MILEPOST_CONFIG_NAME_ field
#define MILEPOST_CONFIG_EACH_NOTE_(r, data, field) MILEPOST_CONFIG_NOTE_ field

#define MILEPOST_CONFIG(Name, help, fields) \
  MILEPOST_CONFIG_SEQUENCE_(Name, help, BOOST_PP_VARIADIC_SEQ_TO_SEQ(fields))

#define MILEPOST_CONFIG_SEQUENCE_(Name, help, fields)                                                       \
  struct Name {                                                                                             \
    BOOST_PP_SEQ_FOR_EACH(MILEPOST_CONFIG_EACH_MEMBER_, _, fields)                                          \
    friend bool operator==(const Name&, const Name&) = default;                                             \
  };                                                                                                        \
  BOOST_DESCRIBE_STRUCT(Name, (),                                                                           \
                        (BOOST_PP_SEQ_ENUM(BOOST_PP_SEQ_TRANSFORM(MILEPOST_CONFIG_EACH_NAME_, _, fields)))) \
  inline std::span<const ::milepost::config::Note> notes_of(const Name*) {                                  \
    static constexpr ::milepost::config::Note kNotes[] = {                                                  \
        BOOST_PP_SEQ_FOR_EACH(MILEPOST_CONFIG_EACH_NOTE_, _, fields)};                                      \
    return kNotes;                                                                                          \
  }                                                                                                         \
  constexpr std::string_view section_help(const Name*) { return help; }
