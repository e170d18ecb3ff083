// The tables of the two models, and what their entries have in common.
#pragma once

#include <span>
#include <string_view>

#include "milepost/config/registry.h"

namespace milepost::config {

std::span<const Entry> llama3_entries();
std::span<const Entry> deepseek_v3_entries();

// One AdamW group over everything with this learning rate.
Optimizer adamw(double lr);
// The flavor, and the chunked loss over its vocabulary.
void set_model(std::string_view model, std::string_view flavor, Trainer* trainer);
int64_t vocab_size(const Trainer& trainer);

}  // namespace milepost::config
