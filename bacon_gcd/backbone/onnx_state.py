"""Tensors by name out of an ONNX file: a network that was exported keeps its weights there.

Only the few fields of the format that hold weights are read (onnx.proto; protocol buffers), and
nothing of the graph is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bacon_gcd.backbone.state import State
from bacon_gcd.config import UserError

FLOAT = 1  # the number type of float32
UNNAMED = "onnx::"  # what the exporter calls a tensor that has no name in the network
WRAPPER = "model."  # the network inside the module that was exported
# Field numbers of onnx.proto.
GRAPH, NODE, INITIALIZER = 7, 1, 5
NODE_INPUT, NODE_NAME, NODE_KIND = 1, 3, 4
DIMS, NUMBER_TYPE, TENSOR_NAME, RAW = 1, 2, 8, 9


@dataclass(frozen=True)
class Node:
    """One operation of the graph."""

    name: str
    kind: str
    inputs: tuple[str, ...]


def read_onnx(data: bytes, *, where: str) -> State:
    """The weights of a network, under the names it has in torch.

    Weights of a linear layer are stored transposed and without a name; that of their product tells
    it: /blocks.0/mlp/fc1/MatMul is blocks.0.mlp.fc1.weight. Other tensors without a name keep the
    name that the exporter gave them.
    """
    try:
        graph = next(part for number, part in _fields(data) if number == GRAPH)
        parts = [(number, part) for number, part in _fields(graph) if isinstance(part, bytes)]
        found = dict(_tensor(part) for number, part in parts if number == INITIALIZER)
        nodes = [_node(part) for number, part in parts if number == NODE]
    except (StopIteration, IndexError, ValueError, TypeError, RuntimeError):
        raise UserError(f"{where}: not an ONNX file with float32 weights") from None
    state = {name.removeprefix(WRAPPER): tensor for name, tensor in found.items()}
    for node in nodes:
        weight = node.inputs[-1] if node.kind == "MatMul" else ""
        if weight.startswith(UNNAMED) and weight in state:
            own = node.name.strip("/").removesuffix("/MatMul").replace("/", ".")
            state[f"{own.removeprefix(WRAPPER)}.weight"] = state.pop(weight).mT.contiguous()
    return state


def read_dinov2_onnx(data: bytes, *, where: str) -> State:
    """DINOv2's state dict; an exporter stores the positions in two parts, without names.

    The position of the class token is the token itself in the original weights, and then it may be
    stored only once.
    """
    state = read_onnx(data, where=where)
    unnamed = [key for key in state if key.startswith(UNNAMED)]
    named = {key: tensor for key, tensor in state.items() if key not in unnamed}
    parts = [state[key] for key in unnamed if state[key].ndim == 3]
    grid = [part for part in parts if part.shape[1] > 1]
    if len(grid) != 1 or "cls_token" not in named:
        raise UserError(f"{where}: not the weights of DINOv2")
    first = next((part for part in parts if part.shape[1] == 1), named["cls_token"])
    return named | {"pos_embed": torch.cat([first, grid[0]], dim=1)}


def _fields(data: object) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message; numbers as ints, all else as bytes."""
    if not isinstance(data, bytes):
        raise ValueError("a number instead of a message")
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        length = {1: 8, 5: 4}.get(kind)
        if length is None:
            if kind != 2:
                raise ValueError(f"wire type {kind}")
            length, at = _varint(data, at)
        if at + length > len(data):
            raise ValueError("cut off")
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where the next field begins."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _tensor(data: bytes) -> tuple[str, Tensor]:
    """Name and values; a tensor of another number type than float32 is empty."""
    name, shape, is_float, raw = "", [], False, b""
    for number, value in _fields(data):
        if number == DIMS and isinstance(value, int):
            shape.append(value)
        elif number == NUMBER_TYPE:
            is_float = value == FLOAT
        elif number == TENSOR_NAME and isinstance(value, bytes):
            name = value.decode()
        elif number == RAW and isinstance(value, bytes):
            raw = value
    if not is_float or not raw:
        return name, torch.empty(0)
    return name, torch.frombuffer(bytearray(raw), dtype=torch.float32).reshape(shape)


def _node(data: bytes) -> Node:
    name, kind, inputs = "", "", []
    for number, value in _fields(data):
        if not isinstance(value, bytes):
            continue
        if number == NODE_INPUT:
            inputs.append(value.decode())
        elif number == NODE_NAME:
            name = value.decode()
        elif number == NODE_KIND:
            kind = value.decode()
    return Node(name, kind, tuple(inputs))
