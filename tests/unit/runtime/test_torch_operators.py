"""``tessera.torch.op``: functions and kernels as operators of PyTorch, with the real torch."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

import tessera_lang as tessera
from tests.operator_functions import TEXT

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module")
def file(tmp_path_factory: Any) -> str:
    path = tmp_path_factory.mktemp("operators") / "ops.tessera"
    path.write_text(TEXT)
    return str(path)


@pytest.fixture(params=DEVICES)
def device(request: Any) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch has no GPU here")
    torch.manual_seed(3)
    return request.param


def _attend(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.T * 0.125, 1) @ v


def _qkv(device: str, dtype: Any = None, grad: bool = True) -> tuple[Any, ...]:
    sizes = ((20, 16), (24, 16), (24, 16))
    dtype = dtype or torch.float32
    made = [torch.randn(s, device=device).to(dtype).requires_grad_(grad) for s in sizes]
    return tuple(made)


def _gradients(f: Any, given: tuple[Any, ...]) -> Any:
    return torch.autograd.grad((f(*given).float() ** 2).sum(), given)


def _near(a: Any, b: Any, by: float = 1e-4) -> bool:
    return torch.allclose(a.float(), b.float(), rtol=by, atol=by)


def test_an_operator_gives_what_torch_gives(file: str, device: str) -> None:
    attend = tessera.torch.op(f"{file}::attend")
    for dtype, by in ((torch.float32, 1e-4), (torch.bfloat16, 0.05)):
        given = _qkv(device, dtype)
        found = attend(*given)
        assert found.dtype == dtype and found.device.type == device and found.requires_grad
        assert _near(found, _attend(*given), by)
        for mine, theirs in zip(_gradients(attend, given), _gradients(_attend, given), strict=True):
            assert mine.dtype == dtype and _near(mine, theirs, by * 4)


def test_the_schema_is_that_of_the_function(file: str) -> None:
    q, x = torch.zeros(4, 4), torch.zeros(4)

    def schema(name: str, *given: Any, **named: Any) -> str:
        return str(tessera.torch.op(f"{file}::{name}").operator(*given, **named)._schema)

    assert (
        schema("attend", q, q, q) == "tessera_ops::attend(Tensor q, Tensor k, Tensor v) -> Tensor"
    )
    assert schema("scale", x, 2.0, x) == (
        "tessera_ops::scale_tft(Tensor x, float factor, Tensor(a0!) out) -> ()"
    )
    p = {"w": (q, q), "b": x}
    text = schema("loss", p, q, q)
    assert text.endswith("(Tensor p_w_0, Tensor p_w_1, Tensor p_b, Tensor x, Tensor y) -> Tensor")
    assert "-> Tensor[]" in schema("several", (q, q), 2.0)


def test_a_state_of_dicts_and_tuples_has_gradients(file: str, device: str) -> None:
    def made(*shape: int) -> Any:
        return torch.randn(*shape, device=device, requires_grad=True)

    p = {"w": (made(3, 4), made(4, 2)), "b": made(4)}
    x, y = torch.randn(5, 3, device=device), torch.randn(5, 2, device=device)
    leaves = (*p["w"], p["b"])

    def reference(p: Any) -> Any:
        return ((torch.relu(x @ p["w"][0] + p["b"]) @ p["w"][1] - y) ** 2).mean()

    mine = tessera.torch.op(f"{file}::loss")(p, x, y)
    assert mine.shape == () and mine.dtype == torch.float64 and _near(mine, reference(p))
    mine, theirs = (torch.autograd.grad(v, leaves) for v in (mine, reference(p)))
    assert all(_near(a, b) for a, b in zip(mine, theirs, strict=True))


def test_several_results_keep_their_form(file: str, device: str) -> None:
    a, b = (torch.randn(3, 3, device=device, requires_grad=True) for _ in range(2))
    found = tessera.torch.op(f"{file}::several")((a, b), 2.0)
    assert _near(found["a"], a * 2) and _near(found["b"][0], b) and _near(found["b"][1], a.T)
    assert found["c"] is None and found["d"].item() == pytest.approx(a.max().item())
    (mine,) = torch.autograd.grad(found["a"].sum() + found["b"][1].sum(), a)
    assert _near(mine, torch.full_like(mine, 3.0))


def test_integers_have_no_gradient_and_others_beside_them_have(file: str, device: str) -> None:
    x = torch.randn(4, 3, device=device, requires_grad=True)
    places = torch.tensor([1, 2], device=device)
    rows, more = tessera.torch.op(f"{file}::rows")(x, places)
    assert more.tolist() == [2, 3] and not more.requires_grad
    assert torch.autograd.grad(rows.sum(), x)[0].sum() == 6
    picked = tessera.torch.op(f"{file}::picked")({"x": x, "i": places, "s": 2.0})
    assert torch.autograd.grad(picked.sum(), x)[0].sum() == 12


def test_kernels_are_operators_too(file: str, device: str) -> None:
    a = torch.randn(5, 7, device=device, requires_grad=True)
    b = torch.randn(7, 3, device=device, requires_grad=True)
    product = tessera.torch.op(f"{file}::product")
    assert _near(product(a, b), a @ b)
    mine, theirs = (torch.autograd.grad(v.sum(), (a, b)) for v in (product(a, b), a @ b))
    assert all(_near(x, y) for x, y in zip(mine, theirs, strict=True))
    x, out = torch.arange(5.0, device=device), torch.zeros(5, device=device)
    version = out._version
    assert tessera.torch.op(f"{file}::scale")(x, 2.0, out, TIMES=3) is None
    assert out.tolist() == [0, 8, 16, 24, 32] and out._version > version
    x.requires_grad_()
    odd = tessera.torch.op(f"{file}::odd")(x)
    assert torch.autograd.grad(odd.sum(), x)[0].tolist() == [3.0] * 5
    out = torch.zeros(4, device=device)
    untyped = tessera.torch.op(tessera.load(file).untyped[2])
    untyped(torch.arange(4.0, device=device), out)
    assert out.tolist() == [0, 1, 2, 3]


def test_results_share_memory_with_nothing(file: str, device: str) -> None:
    x = torch.randn(3, 3, device=device)
    found = tessera.torch.op(f"{file}::ident")(x)
    assert torch.equal(found, x) and found.data_ptr() != x.data_ptr()


def test_views_are_taken_as_they_are(file: str, device: str) -> None:
    whole = torch.randn(16, 40, device=device)
    q, k = whole.T[::2], whole.T[1::2]
    assert _near(tessera.torch.op(f"{file}::attend")(q, k, k), _attend(q, k, k))


def test_the_state_dict_of_a_module_is_an_argument(file: str) -> None:
    module = torch.nn.Linear(3, 3)
    state = {"w": (module.weight, module.weight), "b": module.bias}
    tessera.torch.op(f"{file}::loss")(state, torch.ones(2, 3), torch.ones(2, 3)).backward()
    assert module.weight.grad is not None and module.bias.grad.shape == (3,)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda f, x: f("attend")(x, x.double(), x), "T0818.*f32 and f64"),
        (lambda f, x: f("attend")(x, x[:, :3], x), "T0834.*matmul"),
        (lambda f, x: f("attend")(x.to(torch.complex64), x, x), "T0832.*`q`.*complex64"),
        (lambda f, x: f("attend")(x, x.numpy(), x), "T0831.*`k` holds a `ndarray`"),
        (lambda f, x: f("attend")(x.to_sparse(), x, x), "T0831.*`q`.*sparse"),
        (lambda f, x: f("attend")(x, x), "T0804.*lacks `v`"),
        (lambda f, x: f("attend")(x, x, w=x), "T0804.*no parameter `w`"),
        (lambda f, x: f("shown")(x), "T0760"),
        (lambda f, x: f("product")(x, x.double()), "T08"),
        (lambda f, x: f("missing"), "T0819"),
        (lambda f, x: tessera.torch.op("attend"), "T0858"),
        (lambda f, x: tessera.torch.op(3), "T0858"),
        (lambda f, x: f("attend", name="no name"), "T0858"),
    ],
)
def test_what_does_not_fit_is_refused(file: str, call: Any, said: str) -> None:
    def made(function: str, **named: Any) -> Any:
        return tessera.torch.op(f"{file}::{function}", **named)

    with pytest.raises(tessera.TesseraError, match=said):
        call(made, torch.randn(4, 4))


def test_a_gradient_of_a_gradient_is_refused(file: str) -> None:
    x = torch.randn(3, requires_grad=True)
    y = tessera.torch.op(f"{file}::scaled")(x, 2.0).pow(2).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    with pytest.raises(tessera.TesseraError, match=r"T0761.*gradient of its gradient"):
        torch.autograd.grad(first.sum(), x)


def test_there_is_one_operator_of_a_name(file: str, tmp_path: Path) -> None:
    first = tessera.torch.op(f"{file}::attend")
    assert tessera.torch.op(f"{file}::attend") is first
    assert copy.deepcopy(first) is first
    assert pickle.loads(pickle.dumps(first)) is first  # noqa: S301
    other = tmp_path / "ops.tessera"
    other.write_text("def attend(x):\n    return x * 2.0\n")
    with pytest.raises(tessera.TesseraError, match=r"T0858.*another file"):
        tessera.torch.op(f"{other}::attend")
    named = tessera.torch.op(f"{other}::attend", name="mine::attend")
    assert named(torch.ones(2)).tolist() == [2.0, 2.0]
    other.write_text("def attend(x):\n    return x * 3.0\n")
    changed = tessera.torch.op(f"{other}::attend", name="mine::attend")
    assert changed(torch.ones(2)).tolist() == [3.0, 3.0]
    assert named(torch.ones(2)).tolist() == [2.0, 2.0]


def test_each_form_of_arguments_has_its_operator(file: str) -> None:
    shifted = tessera.torch.op(f"{file}::shifted")
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        assert shifted(x, x).tolist() == [2.0] * 3
        assert shifted(x).tolist() == shifted(x, None).tolist() == [1.0] * 3
        assert shifted(x, by=2.0).tolist() == [3.0] * 3
    # Names that others have already, and gradients after those.
    wide, narrow = (tessera.torch.op(f"{file}::{n}") for n in ("scaled_tf", "scaled"))
    y = torch.tensor(2.0)
    assert wide(x, y).tolist() == [20.0] * 3 and narrow(x, 2.0).tolist() == [2.0] * 3
    assert torch.autograd.grad(narrow(x, 2.0).sum(), x)[0].tolist() == [2.0] * 3
    assert torch.autograd.grad(wide(x, y).sum(), x)[0].tolist() == [20.0] * 3


def test_as_many_results_in_every_case(file: str) -> None:
    uneven = tessera.torch.op(f"{file}::uneven")
    assert uneven(torch.ones(3)).tolist() == [1.0] * 3
    with pytest.raises(tessera.TesseraError, match=r"T0858.*another number"):
        uneven(torch.ones(5))


def test_a_gradient_is_an_operator(file: str) -> None:
    loss = tessera.load(file).loss
    step = tessera.torch.op(tessera.value_and_grad(loss))
    p = {"w": (torch.ones(3, 4), torch.ones(4, 2)), "b": torch.ones(4)}
    value, gradient = step(p, torch.ones(5, 3), torch.ones(5, 2))
    assert value.item() == pytest.approx(225.0) and gradient["w"][0].shape == (3, 4)


# --- torch's own checks, and its compiler ---------------------------------------------------


@pytest.mark.slow
def test_torchs_own_checks_pass(file: str, device: str) -> None:
    def check(name: str, *given: Any) -> None:
        operator = tessera.torch.op(f"{file}::{name}").operator(*given)
        leaves, _ = torch.utils._pytree.tree_flatten(given)
        torch.library.opcheck(operator, tuple(leaves))

    x = torch.randn(4, 4, device=device)
    check("attend", *_qkv(device))
    check("several", (x, x.clone().requires_grad_()), 2.0)
    check("rows", x.clone().requires_grad_(), torch.tensor([1, 2], device=device))
    check("ident", x.clone().requires_grad_())
    check("product", x.clone().requires_grad_(), x)
    check("scale", x[0], 2.0, x[1].clone())
    check("scaled", x.clone().requires_grad_(), 2.0)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_it_is_one_graph_of_torch_compile(file: str, device: str, dynamic: bool) -> None:
    options: Any = {"fullgraph": True, "dynamic": dynamic, "backend": "aot_eager"}
    attend, loss = (tessera.torch.op(f"{file}::{n}") for n in ("attend", "loss"))
    compiled = torch.compile(lambda q, k, v: attend(q, k, v) * 2, **options)
    for rows in (20, 20, 12):
        given = tuple(x[:rows].detach().requires_grad_() for x in _qkv(device))
        wanted = _gradients(lambda q, k, v: _attend(q, k, v) * 2, given)
        pairs = zip(_gradients(compiled, given), wanted, strict=True)
        assert all(_near(mine, theirs, 1e-3) for mine, theirs in pairs)

    scale = tessera.torch.op(f"{file}::scale")

    def inside(x: Any) -> Any:
        out = torch.zeros_like(x)
        scale(x, 2.0, out)
        return out + 1

    x = torch.arange(5.0, device=device)
    assert torch.compile(inside, **options)(x).tolist() == [1, 3, 5, 7, 9]
    p = {"w": (torch.ones(3, 4, device=device), torch.ones(4, 2, device=device)),
         "b": torch.ones(4, device=device)}  # fmt: skip
    x, y = torch.ones(5, 3, device=device), torch.ones(5, 2, device=device)
    found = torch.compile(lambda p, x, y: loss(p, x, y) + 1, **options)(p, x, y)
    assert found.item() == pytest.approx(226.0)
    for name, given, wanted in (("flat", torch.ones(3, 5), 15.0), ("large", torch.ones(5), 10.0),
                                ("large", torch.ones(3), 9.0)):  # fmt: skip
        f = tessera.torch.op(f"{file}::{name}")
        again = torch.compile(lambda x, f=f: f(x) + 0, **options)
        assert again(given.to(device)).sum().item() == wanted


@pytest.mark.slow
def test_inductor_takes_it(file: str, device: str) -> None:
    attend = tessera.torch.op(f"{file}::attend")
    compiled = torch.compile(lambda q, k, v: attend(q * 2, k, v) + 1, fullgraph=True)
    given = _qkv(device)
    wanted = _gradients(lambda q, k, v: _attend(q * 2, k, v) + 1, given)
    pairs = zip(_gradients(compiled, given), wanted, strict=True)
    assert all(_near(mine, theirs, 1e-3) for mine, theirs in pairs)


@pytest.mark.slow
def test_it_is_exported_with_sizes_that_are_names(file: str) -> None:
    attend = tessera.torch.op(f"{file}::attend")

    class Model(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return attend(q, k, v) * 2

    given = _qkv("cpu", grad=False)
    n, m = (torch.export.Dim(x) for x in ("n", "m"))
    sizes = {"q": {0: n}, "k": {0: m}, "v": {0: m}}
    program = torch.export.export(Model(), given, dynamic_shapes=sizes)
    assert "tessera_ops.attend" in str(program.graph)
    q, k, v = (torch.randn(rows, 16) for rows in (7, 9, 9))
    assert _near(program.module()(q, k, v), _attend(q, k, v) * 2)


@pytest.mark.gpu
def test_it_runs_in_torchs_current_stream(file: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU here")
    scaled = tessera.torch.op(f"{file}::scaled")
    x = torch.ones(1 << 22, device="cuda")
    scaled(x, 2.0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(20):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            y = torch.full_like(x, 3.0)
            z = scaled(y, 2.0)
            y.zero_()
        stream.synchronize()
        assert bool((z == 6.0).all())
    graph = torch.cuda.CUDAGraph()
    held = torch.ones(64, device="cuda")
    scaled(held, 2.0)
    with torch.cuda.graph(graph):
        out = scaled(held, 2.0)
    held.fill_(5.0)
    graph.replay()
    assert bool((out == 10.0).all())
