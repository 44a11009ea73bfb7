// The compiled kernels as torch operators of the namespace astrai_native. The only file that knows torch's tensors;
// arguments arrive checked by the Python side (ops.py, arguments.py).
#include "cpu/attention_varlen.h"
#include "cpu/rotary.h"

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace astrai {
namespace {

#define ASTRAI_DISPATCH(type, name, ...) \
  AT_DISPATCH_SWITCH( \
      type, name, AT_DISPATCH_CASE(at::kFloat, __VA_ARGS__) AT_DISPATCH_CASE(at::kBFloat16, __VA_ARGS__))

template <typename Element>
Heads<Element> heads(const at::Tensor& x) {
  return {x.const_data_ptr<Element>(), x.stride(0), x.stride(1)};
}

at::Tensor attention_varlen(
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const at::Tensor& cu_seqlens,
    double scale,
    bool causal) {
  auto out = at::empty(q.sizes(), q.options());
  ASTRAI_DISPATCH(q.scalar_type(), "attention_varlen", [&] {
    cpu::attention_varlen<scalar_t>(
        {heads<scalar_t>(q),
         heads<scalar_t>(k),
         heads<scalar_t>(v),
         out.mutable_data_ptr<scalar_t>(),
         cu_seqlens.const_data_ptr<int32_t>(),
         q.size(0),
         cu_seqlens.numel() - 1,
         q.size(1),
         k.size(1),
         q.size(2),
         static_cast<float>(scale),
         causal});
  });
  return out;
}

at::Tensor rotary(
    const at::Tensor& x,
    const at::Tensor& cos,
    const at::Tensor& sin,
    const std::optional<at::Tensor>& positions,
    bool interleaved) {
  auto out = at::empty(x.sizes(), x.options());
  ASTRAI_DISPATCH(x.scalar_type(), "rotary", [&] {
    cpu::rotary<scalar_t>(
        {x.const_data_ptr<scalar_t>(),
         x.stride(0),
         x.stride(1),
         out.mutable_data_ptr<scalar_t>(),
         cos.const_data_ptr<float>(),
         sin.const_data_ptr<float>(),
         positions ? positions->const_data_ptr<int64_t>() : nullptr,
         x.size(0),
         x.size(1),
         x.size(2),
         cos.size(1),
         interleaved});
  });
  return out;
}

}  // namespace
}  // namespace astrai

TORCH_LIBRARY(astrai_native, m) {
  m.def("attention_varlen(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens, float scale, bool causal) -> Tensor");
  m.def("rotary(Tensor x, Tensor cos, Tensor sin, Tensor? positions, bool interleaved) -> Tensor");
}

TORCH_LIBRARY_IMPL(astrai_native, CPU, m) {
  m.impl("attention_varlen", astrai::attention_varlen);
  m.impl("rotary", astrai::rotary);
}
