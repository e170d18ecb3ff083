// Walks a configuration by its descriptions (declare.h) and lists its options.
#include <boost/describe.hpp>
#include <boost/mp11.hpp>

#include "config/option.h"
#include "config/value_types.h"

namespace milepost::config {
namespace {

template <typename T>
using Members = boost::describe::describe_members<T, boost::describe::mod_public>;

class TreeBuilder {
 public:
  // The options of a section come before the sections in it, which inherit its marks.
  template <typename T>
  void add(T& section, const std::string& path, unsigned marks) {
    const size_t place = sections_.size();
    sections_.push_back({path, section_help(&section), {}});
    for_each_member(section, path, marks, [&](auto& value, const std::string& name, const Note& note) {
      using Type = std::remove_reference_t<decltype(value)>;
      if constexpr (Leaf<Type>)
        sections_[place].options.push_back({name, note, &Value<Type>::type(), &value});
    });
    for_each_member(section, path, marks, [&](auto& value, const std::string& name, const Note& note) {
      if constexpr (!Leaf<std::remove_reference_t<decltype(value)>>) add(value, name, note.marks);
    });
  }

  std::vector<Section> take() { return std::move(sections_); }

 private:
  // Of the model only what is beside its dimensions: those are for files.
  void add(Model& model, const std::string& path, unsigned marks) { add(model.options, path, marks); }

  template <typename... Alternatives>
  void add(std::variant<Alternatives...>& value, const std::string& path, unsigned marks) {
    std::visit([&](auto& alternative) { add(alternative, path, marks); }, value);
  }

  template <typename T>
  void add(std::vector<T>& values, const std::string& path, unsigned marks) {
    for (size_t i = 0; i < values.size(); ++i) add(values[i], path + "." + std::to_string(i), marks);
  }

  template <typename T, typename Function>
  static void for_each_member(T& section, const std::string& path, unsigned marks, const Function& function) {
    const std::span<const Note> notes = notes_of(&section);
    size_t i = 0;
    boost::mp11::mp_for_each<Members<T>>([&](auto member) {
      Note note = notes[i++];
      note.marks |= marks;
      function(section.*member.pointer, path.empty() ? member.name : path + "." + member.name, note);
    });
  }

  std::vector<Section> sections_;
};

}  // namespace

std::string with_hyphens(std::string_view text) {
  std::string hyphens(text);
  for (char& c : hyphens) {
    if (c == '_') c = '-';
  }
  return hyphens;
}

std::string Option::flag() const { return "--" + with_hyphens(path); }

std::string Option::no_flag() const {
  std::string flag = this->flag();
  const size_t dot = flag.rfind('.');
  return flag.insert(dot == flag.npos ? 2 : dot + 1, "no-");
}

std::vector<Section> option_tree(Trainer& trainer) {
  TreeBuilder builder;
  builder.add(trainer, "", 0);
  return builder.take();
}

}  // namespace milepost::config
