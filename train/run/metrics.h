// What is said of a step in the log, and how its figures are computed (spec training, section 14). Pure; any
// thread may call anything.
#pragma once

#include <cstdint>
#include <string>

namespace milepost::train {

// Colours of the log: TorchTitan's terminal codes, or none.
struct Colors {
  const char *red = "", *green = "", *orange = "", *turquoise = "", *blue = "", *cyan = "", *magenta = "";
  const char* reset = "";

  static Colors terminal();
};

// Memory of the device since the last line: in use, and taken from the system. On a CPU both are the resident
// set of the process, as a share of the machine's memory.
struct MemoryUse {
  int64_t active_bytes = 0, reserved_bytes = 0, total_bytes = 0;
  int64_t num_retries = 0, num_failures = 0;

  // The greater of each; counts are added.
  MemoryUse& join(const MemoryUse& other);
  double active_percent() const;
  double reserved_percent() const;
};

// Tokens and time between two lines.
struct Interval {
  int64_t num_tokens = 0, num_steps = 0;
  double seconds = 0, data_seconds = 0;
};

struct Rates {
  double tokens_per_second = 0, tflops = 0, mfu_percent = 0;
};
// `flops_per_token` as model_size gives it; `peak_flops` of the device, a second; 0 where it is not known:
// then mfu is 0.
Rates rates(const Interval& interval, int64_t flops_per_token, double peak_flops);

struct StepFigures {
  int64_t step = 0;
  double loss = 0, max_loss = 0, grad_norm = 0;
  MemoryUse memory;
  Rates rates;
};
// step:  1  loss:  8.04012  grad_norm:  1.8341  memory:  0.51GiB(0.80%)  tps: 1,234  tflops: 0.67 mfu: 31.20%
std::string step_line(const StepFigures& figures, const Colors& colors);
// validate step:  5  loss:  7.5012  memory:  0.60GiB(0.94%)  tps: 3,210
std::string validation_line(const StepFigures& figures, const Colors& colors);

// 1234567 -> "1,234,567".
std::string with_commas(int64_t number);
// 1234.5 -> "1,234.50".
std::string with_commas(double number, int num_decimals);
double gib(int64_t bytes);

}  // namespace milepost::train
