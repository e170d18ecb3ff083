// What of libtorch the trainer uses: tensors, functions on them, autograd. Precompiled: including it costs
// nothing in milepost_trainer's files, and fifteen seconds in a file elsewhere.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
