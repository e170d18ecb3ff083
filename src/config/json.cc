#include "config/json.h"

#include <fmt/format.h>

#include <boost/describe.hpp>
#include <boost/mp11.hpp>

#include "config/flavor_fields.h"
#include "config/nearest.h"
#include "milepost/base/error.h"

namespace milepost::config {
namespace {

template <typename T>
using Members = boost::describe::describe_members<T, boost::describe::mod_public>;

class Writer {
 public:
  template <typename T>
  static Json write(const T& value) {
    if constexpr (Leaf<T>) {
      return Value<T>::to_json(value);
    } else if constexpr (std::is_enum_v<T>) {
      return std::string(enumerator_names(value)[static_cast<size_t>(value)]);
    } else {
      Json json = Json::object();
      boost::mp11::mp_for_each<Members<T>>(
          [&](auto member) { json[member.name] = write(value.*member.pointer); });
      return json;
    }
  }

  template <typename T>
  static Json write(const std::vector<T>& values) {
    if constexpr (Leaf<std::vector<T>>) {
      return Value<std::vector<T>>::to_json(values);
    } else {
      Json list = Json::array();
      for (const T& value : values) list.push_back(write(value));
      return list;
    }
  }

  template <typename... Alternatives>
  static Json write(const std::variant<Alternatives...>& value) {
    Json json = {{alternative_key(&value), alternative_names(&value)[value.index()]}};
    json.update(std::visit([](const auto& alternative) { return write(alternative); }, value));
    return json;
  }

  static Json write(const Model& model) {
    Json json = {{"name", model.architecture.model()}, {"flavor", model.architecture.name}};
    json.update(std::visit([](const auto& dims) { return write(dims); }, model.architecture.dims));
    json.update(write(model.options));
    return json;
  }
};

class Reader {
 public:
  template <typename T>
  void read(const Json& json, T* value) {
    if constexpr (Leaf<T>) {
      try {
        *value = Value<T>::from_json(json);
      } catch (const WrongType& error) {
        fail_type(json, error.wanted);
      }
    } else if constexpr (std::is_enum_v<T>) {
      *value = static_cast<T>(read_name(json, enumerator_names(*value)));
    } else {
      read_fields(json, {}, value);
    }
  }

  template <typename T>
  void read(const Json& json, std::vector<T>* values) {
    if constexpr (Leaf<std::vector<T>>) {
      read<std::vector<T>>(json, values);
    } else {
      if (!json.is_array()) fail_type(json, "a list");
      values->resize(json.size());
      for (size_t i = 0; i < json.size(); ++i) {
        within(std::to_string(i), [&] { read(json[i], &(*values)[i]); });
      }
    }
  }

  template <typename... Alternatives>
  void read(const Json& json, std::variant<Alternatives...>* value) {
    require_object(json);
    const std::string key(alternative_key(value));
    if (json.contains(key)) {
      within(key, [&] { choose(read_name(json[key], alternative_names(value)), value); });
    }
    std::visit([&](auto& alternative) { read_fields(json, {key}, &alternative); }, *value);
  }

  void read(const Json& json, Model* model) {
    require_object(json);
    choose_architecture(json, &model->architecture);
    const flavor::Model chosen = model->architecture;
    std::visit([&](auto& dims) { read_model(json, &dims, &model->options); }, model->architecture.dims);
    if (!same_but_for_mtp(chosen, model->architecture)) model->architecture.name.clear();
  }

 private:
  // Fields of two structs stand side by side in the model's section.
  template <typename Dims>
  void read_model(const Json& json, Dims* dims, ModelOptions* options) {
    std::vector<std::string> known = {"name", "flavor"};
    append_names<Dims>(&known);
    append_names<ModelOptions>(&known);
    refuse_unknown(json, known);
    read_known(json, dims);
    read_known(json, options);
  }

  // A flavor without changes keeps its name; its MTP layers are a setting of their own.
  static bool same_but_for_mtp(const flavor::Model& a, flavor::Model b) {
    auto* dims = std::get_if<flavor::DeepSeekV3>(&b.dims);
    if (dims != nullptr) dims->num_mtp_layers = std::get<flavor::DeepSeekV3>(a.dims).num_mtp_layers;
    return a.dims == b.dims;
  }

  void choose_architecture(const Json& json, flavor::Model* model) {
    std::string name(model->model()), flavor_name = model->name;
    if (json.contains("name")) within("name", [&] { read(json["name"], &name); });
    if (json.contains("flavor")) within("flavor", [&] { read(json["flavor"], &flavor_name); });
    const bool other = name != model->model();
    if (json.contains("flavor") && !flavor_name.empty()) {
      within("flavor", [&] { *model = find_flavor(name, flavor_name); });
    } else if (other) {
      within("name", [&] { *model = without_size(name); });
    } else if (json.contains("flavor")) {
      model->name.clear();
    }
  }

  // A model of that name with every dimension still to be given.
  flavor::Model without_size(const std::string& name) {
    flavor::Model model = find_flavor(name, "debugmodel");
    model.name.clear();
    std::visit([](auto& dims) { dims = {}; }, model.dims);
    return model;
  }

  flavor::Model find_flavor(const std::string& name, std::string_view flavor_name) {
    try {
      return flavor::find(name, flavor_name);
    } catch (const ValueError& error) {
      fail(error.what(), "");
    }
  }

  template <typename... Alternatives>
  static void choose(size_t index, std::variant<Alternatives...>* value) {
    if (index == value->index()) return;
    boost::mp11::mp_with_index<sizeof...(Alternatives)>(index, [&](auto i) { value->template emplace<i>(); });
  }

  template <typename T>
  void read_fields(const Json& json, std::vector<std::string> known, T* value) {
    require_object(json);
    append_names<T>(&known);
    refuse_unknown(json, known);
    read_known(json, value);
  }

  template <typename T>
  void read_known(const Json& json, T* value) {
    boost::mp11::mp_for_each<Members<T>>([&](auto member) {
      const auto found = json.find(member.name);
      if (found != json.end()) within(member.name, [&] { read(*found, &(value->*member.pointer)); });
    });
  }

  template <typename T>
  static void append_names(std::vector<std::string>* names) {
    boost::mp11::mp_for_each<Members<T>>([&](auto member) { names->push_back(member.name); });
  }

  void refuse_unknown(const Json& json, const std::vector<std::string>& known) {
    for (const auto& [key, value] : json.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string near = nearest(key, known);
      within(key, [&] { fail("no such key", near.empty() ? "" : fmt::format("did you mean '{}'?", near)); });
    }
  }

  size_t read_name(const Json& json, std::span<const std::string_view> names) {
    const auto found =
        std::find_if(names.begin(), names.end(), [&](std::string_view name) { return json == name; });
    if (found == names.end()) fail_type(json, choice_words(names));
    return static_cast<size_t>(found - names.begin());
  }

  void require_object(const Json& json) {
    if (!json.is_object()) fail_type(json, "a section (an object)");
  }

  template <typename Function>
  void within(const std::string& key, const Function& function) {
    const size_t length = path_.size();
    if (!path_.empty()) path_ += '.';
    path_ += key;
    function();
    path_.resize(length);
  }

  [[noreturn]] void fail_type(const Json& json, std::string_view wanted) {
    fail(fmt::format("want {}, found {}", wanted,
                     printable(json.dump(-1, ' ', false, Json::error_handler_t::replace), 60)),
         "");
  }
  [[noreturn]] void fail(const std::string& text, const std::string& hint) {
    FormatError error(ErrorCode::kBadFormat, text, hint);
    error.set_key(path_);
    throw error;
  }

  std::string path_;
};

}  // namespace

Json to_json(const Trainer& trainer) { return Writer::write(trainer); }

void read_json(const Json& json, Trainer* trainer) { Reader().read(json, trainer); }

}  // namespace milepost::config
