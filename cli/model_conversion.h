// What import and export have in common: which model, and the report of every tensor.
#pragma once

#include <optional>
#include <string>

#include "conversion.h"
#include "milepost/engine/model.h"

namespace milepost::cli {

struct ModelConversion {
  Conversion conversion;
  std::optional<std::string> model, flavor, config, report_path;
  int64_t mtp_layers = -1;
  std::optional<size_t> dtype;

  void declare(Flags& flags);
  ModelChoice choice() const;
  std::optional<DType> chosen_dtype() const;
  // Converts `named`, made of `source`, and reports.
  int run(const Terminal& terminal, const std::string& label, const std::shared_ptr<const Checkpoint>& source,
          const NamedModel& named);
};

// The flags by which a model is named: --model, --flavor, --config, --mtp-layers. `model` may be null: where
// a positional argument names it, nothing is found out.
void declare_model_flags(Flags& flags, std::optional<std::string>* model, std::optional<std::string>* flavor,
                         std::optional<std::string>* config, int64_t* mtp_layers);

}  // namespace milepost::cli
