"""FlashAttention-4's Hopper kernels as two C functions, forward and backward, of pointers, sizes and strides.

Rows are tokens: token t of sample s is row s * length + t, a head's columns lie side by side, and rows are
`stride` elements apart. Backward is the deterministic one: key tiles add to a query's gradient, and heads
of a group to a key's, by turns that semaphores give out in one fixed order.

Kernels for packed samples take documents of any length instead, one behind the other: `offsets` says where each begins.
To them `samples` is how many documents there may be, `q_len` all rows, and `kv_len` the length of the longest.
"""
import os
import platform

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")
os.environ.setdefault("FLASH_ATTENTION_ARCH", "sm_90")

# The order matters: no_torch.
import tvm_ffi  # noqa: F401
import cutlass
import cutlass.cute as cute
import no_torch

no_torch.prepare()

import cuda.bindings.driver as cuda
from cutlass import Float32, Int32, Int64
from cutlass.cute.typing import AddressSpace
from flash_attn.cute.flash_bwd_postprocess import FlashAttentionBackwardPostprocess
from flash_attn.cute.flash_bwd_preprocess import FlashAttentionBackwardPreprocess
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90
from flash_attn.cute.flash_fwd_sm90 import FlashAttentionForwardSm90
from flash_attn.cute.interface import _tile_size_bwd_sm90, _tile_size_fwd_sm90
from flash_attn.cute.utils import AuxData

TYPES = {"bf16": cutlass.BFloat16, "fp16": cutlass.Float16}
ARCH = 90
# The host's half runs on every processor of this kind, not only on the one that compiles it.
OPTIONS = "--host-target 'llvm -mtriple={}-unknown-linux-gnu -mcpu={}'".format(
    platform.machine(), {"x86_64": "x86-64"}.get(platform.machine(), "generic"))

# What a query sees: every key; those up to its own; the last `window` of these.
MASKS = {"full": {"is_causal": False, "is_local": False}, "causal": {"is_causal": True, "is_local": False},
         "window": {"is_causal": False, "is_local": True}}
LOG2_E = 1.4426950408889634


@cute.jit
def each(values, function: cutlass.Constexpr, *more):
    """A vector of what function gives for each number of `values`."""
    numbers = cute.make_rmem_tensor(values.shape, Float32)
    numbers.store(values)
    for i in cutlass.range(cute.size(numbers.shape), unroll_full=True):
        numbers[i] = function(numbers[i], *more)
    return numbers.load()


def bend(score, rate):
    """1 - tanh(score / cap), where rate is 2 log2(e) / cap: to 7 digits, which the GPU's own tanh is far from."""
    return 2.0 * cute.arch.rcp_approx(cute.math.exp2(score * rate, fastmath=True) + 1.0)


@cute.jit
def cap_scores(scores, sample, head, q_idx, kv_idx, seqlen_info, aux_tensors, aux_scalars):
    """softcap * tanh(score / softcap), with the cap known at run time."""
    cap, rate = aux_scalars
    return cap - cap * each(scores, bend, rate)


@cute.jit
def cap_gradients(gradients, scores, sample, head, q_idx, kv_idx, seqlen_info, aux_tensors, aux_scalars):
    bent = each(scores, bend, aux_scalars[1])
    return gradients * bent * (2.0 - bent)


def cap_of(capped, softcap):
    return AuxData(None, (softcap, Float32(2 * LOG2_E) / softcap) if capped else None)


def window_of(mask, window):
    """Keys before a query's own, and behind it."""
    return {"window_size_left": window - 1, "window_size_right": Int32(0)} if mask == "window" else {}


def aligned(stride, elements):
    return cute.assume(stride, divby=elements)


class Samples:
    """How operands lie whose samples all have one length. Rows begin at multiples of 16 bytes."""
    def __init__(self, samples, dim):
        self.samples, self.dim = samples, dim

    def rows(self, pointer, tokens, heads, stride):
        """[samples, tokens, heads, dim]"""
        strides = (aligned(Int64(tokens) * stride, 8), aligned(stride, 8), self.dim, 1)
        return cute.make_tensor(pointer, cute.make_layout((self.samples, tokens, heads, self.dim), stride=strides))

    def plain(self, pointer, heads, tokens):
        """[samples, heads, tokens] without gaps."""
        strides = (Int64(heads) * tokens, Int64(tokens), 1)
        return cute.make_tensor(pointer, cute.make_layout((self.samples, heads, tokens), stride=strides))

    def sums(self, pointer, heads, tokens, tile, columns=1):
        """[samples, heads, tokens * columns], where tokens are rounded up to tiles."""
        count = cute.ceil_div(tokens, tile) * tile * columns
        strides = (aligned(Int64(heads) * count, 4), aligned(Int64(count), 4), 1)
        return cute.make_tensor(pointer, cute.make_layout((self.samples, heads, count), stride=strides))


class Documents:
    """The same of packed samples: one axis of all rows. In sums every document begins with a tile of its own."""
    def __init__(self, documents, total, dim):
        self.documents, self.total, self.dim = documents, total, dim

    def rows(self, pointer, _, heads, stride):
        strides = (aligned(stride, 8), self.dim, 1)
        return cute.make_tensor(pointer, cute.make_layout((self.total, heads, self.dim), stride=strides))

    def plain(self, pointer, heads, _):
        return cute.make_tensor(pointer, cute.make_layout((heads, self.total), stride=(Int64(self.total), 1)))

    def sums(self, pointer, heads, _, tile, columns=1):
        count = (self.total + (self.documents + 1) * tile - 1) // tile * tile * columns
        return cute.make_tensor(pointer, cute.make_layout((heads, count), stride=(aligned(Int64(count), 4), 1)))


def samples_of(packed, samples, q_len, dim):
    return Documents(samples, q_len, dim) if packed else Samples(samples, dim)


def offsets_of(packed, offsets, samples):
    """Where documents begin, for those arguments that ask for it."""
    return list_of(offsets, samples + 1) if packed else None


def list_of(pointer, count):
    return cute.make_tensor(pointer, cute.make_layout((count,), stride=(1,)))


def turns(pointer, samples, heads, tiles, each):
    """Semaphores."""
    strides = (heads * tiles * each, tiles * each, each, 1)
    return cute.make_tensor(pointer, cute.make_layout((samples, heads, tiles, each), stride=strides))


def pointer_to(element, alignment=16):
    return cute.runtime.make_ptr(element, 0, AddressSpace.gmem, assumed_align=alignment)


def compile_forward(type_name, dim, group, mask, capped, packed):
    element = TYPES[type_name]
    tile = _tile_size_fwd_sm90(dim, dim, *MASKS[mask].values())
    attention = FlashAttentionForwardSm90(
        element, dim, dim, group, **MASKS[mask], pack_gqa=group > 1,
        tile_m=tile.m_block_size, tile_n=tile.n_block_size, num_stages=2, num_threads=384, Q_in_regs=False,
        score_mod=cap_scores if capped else None, intra_wg_overlap=tile.intra_wg_overlap,
        mma_pv_is_rs=tile.mma_pv_is_rs)

    @cute.jit
    def forward(
            q: cute.Pointer, k: cute.Pointer, v: cute.Pointer, out: cute.Pointer, lse: cute.Pointer,
            offsets: cute.Pointer, samples: Int32, q_len: Int32, kv_len: Int32, heads: Int32, kv_heads: Int32,
            q_stride: Int64, kv_stride: Int64, out_stride: Int64, scale: Float32, window: Int32, softcap: Float32,
            stream: cuda.CUstream):
        lie, where = samples_of(packed, samples, q_len, dim), offsets_of(packed, offsets, samples)
        attention(
            lie.rows(q, q_len, heads, q_stride), lie.rows(k, kv_len, kv_heads, kv_stride),
            lie.rows(v, kv_len, kv_heads, kv_stride), lie.rows(out, q_len, heads, out_stride),
            lie.plain(lse, heads, q_len), scale, mCuSeqlensQ=where, mCuSeqlensK=where, **window_of(mask, window),
            aux_data=cap_of(capped, softcap), stream=stream)

    x, size, stride = pointer_to(element), Int32(1), Int64(8)
    compiled = cute.compile(forward, x, x, x, x, pointer_to(Float32, 4), pointer_to(Int32, 4), *[size] * 5, *[stride] * 3, Float32(1),
                            Int32(1), Float32(1), cuda.CUstream(0), options=OPTIONS)
    return compiled, (tile.m_block_size, tile.n_block_size, dim)


def compile_backward(type_name, dim, group, mask, capped, packed):
    element = TYPES[type_name]
    c = _tile_size_bwd_sm90(dim, dim, *MASKS[mask].values())
    q_tile, kv_tile = c.m_block_size, c.n_block_size
    multiple = 64 if c.dKV_swapAB else 32  # of columns, in the sums
    width = (dim + multiple - 1) // multiple * multiple
    warps = c.num_wg * 128
    before = FlashAttentionBackwardPreprocess(element, dim, dim, q_tile, hdim_multiple_of=multiple)
    attention = FlashAttentionBackwardSm90(
        element, dim, dim, group, **MASKS[mask], deterministic=True, tile_m=q_tile, tile_n=kv_tile,
        Q_stage=c.num_stages_Q, dO_stage=c.num_stages_dO, PdS_stage=c.num_stages_PdS, SdP_swapAB=c.SdP_swapAB,
        dKV_swapAB=c.dKV_swapAB, dQ_swapAB=c.dQ_swapAB, AtomLayoutMSdP=c.AtomLayoutMSdP,
        AtomLayoutNdKV=c.AtomLayoutNdKV, AtomLayoutMdQ=c.AtomLayoutMdQ, num_threads=warps + 128, V_in_regs=False,
        score_mod=cap_scores if capped else None, score_mod_bwd=cap_gradients if capped else None,
        dQ_single_wg=c.dQ_single_wg)
    after_q = FlashAttentionBackwardPostprocess(
        element, dim, ARCH, q_tile, 128 if c.dQ_single_wg else warps, c.AtomLayoutMdQ, c.dQ_swapAB,
        hdim_multiple_of=multiple)
    after_kv = FlashAttentionBackwardPostprocess(
        element, dim, ARCH, kv_tile, warps, c.AtomLayoutNdKV, c.dKV_swapAB, hdim_multiple_of=multiple)

    @cute.jit
    def backward(
            q: cute.Pointer, k: cute.Pointer, v: cute.Pointer, out: cute.Pointer, dout: cute.Pointer,
            lse: cute.Pointer, dq: cute.Pointer, dk: cute.Pointer, dv: cute.Pointer,
            dq_sum: cute.Pointer, dk_sum: cute.Pointer, dv_sum: cute.Pointer, lse_log2: cute.Pointer,
            delta: cute.Pointer, dq_turn: cute.Pointer, dk_turn: cute.Pointer, dv_turn: cute.Pointer,
            offsets: cute.Pointer, samples: Int32, q_len: Int32, kv_len: Int32, heads: Int32, kv_heads: Int32,
            q_stride: Int64, kv_stride: Int64, out_stride: Int64, dq_stride: Int64, dkv_stride: Int64,
            scale: Float32, window: Int32, softcap: Float32, stream: cuda.CUstream):
        lie, where = samples_of(packed, samples, q_len, dim), offsets_of(packed, offsets, samples)
        longest = kv_len if cutlass.const_expr(packed) else q_len  # of queries
        q_tiles, kv_tiles = cute.ceil_div(longest, q_tile), cute.ceil_div(kv_len, kv_tile)
        grad = lie.rows(dout, q_len, heads, out_stride)
        log2, dots = lie.sums(lse_log2, heads, q_len, q_tile), lie.sums(delta, heads, q_len, q_tile)
        sum_q = lie.sums(dq_sum, heads, q_len, q_tile, width)
        before(lie.rows(out, q_len, heads, out_stride), grad, dots, lie.plain(lse, heads, q_len), log2, sum_q, where,
               None, None, None, None, Float32(1), None, None, stream)
        inputs = (lie.rows(q, q_len, heads, q_stride), lie.rows(k, kv_len, kv_heads, kv_stride),
                  lie.rows(v, kv_len, kv_heads, kv_stride), grad, log2, dots, sum_q)
        of_k, of_v = lie.rows(dk, kv_len, kv_heads, dkv_stride), lie.rows(dv, kv_len, kv_heads, dkv_stride)
        q_turns = turns(dq_turn, samples, heads, q_tiles, 1)
        scores = {"mCuSeqlensQ": where, "mCuSeqlensK": where, **window_of(mask, window),
                  "aux_data": cap_of(capped, softcap)}
        if cutlass.const_expr(group == 1):
            attention(*inputs, of_k, of_v, scale, mdQ_semaphore=q_turns, **scores, stream=stream)
        else:
            sum_k = lie.sums(dk_sum, kv_heads, kv_len, kv_tile, width)
            sum_v = lie.sums(dv_sum, kv_heads, kv_len, kv_tile, width)
            attention(*inputs, sum_k, sum_v, scale, mdQ_semaphore=q_turns,
                      mdK_semaphore=turns(dk_turn, samples, kv_heads, kv_tiles, 2),
                      mdV_semaphore=turns(dv_turn, samples, kv_heads, kv_tiles, 2), **scores, stream=stream)
            after_kv(sum_k, of_k, scale, where, None, None, None, stream)
            after_kv(sum_v, of_v, Float32(1), where, None, None, None, stream)
        after_q(sum_q, lie.rows(dq, q_len, heads, dq_stride), scale, where, None, None, None, stream)

    x, total, turn = pointer_to(element), pointer_to(Float32), pointer_to(Int32, 4)
    size, stride = Int32(1), Int64(8)
    compiled = cute.compile(backward, *[x] * 5, pointer_to(Float32, 4), *[x] * 3, *[total] * 5, *[turn] * 4,
                            *[size] * 5, *[stride] * 5, Float32(1), Int32(1), Float32(1), cuda.CUstream(0),
                            options=OPTIONS)
    return compiled, (q_tile, kv_tile, width)
