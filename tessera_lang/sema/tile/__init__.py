"""The checker of tile kernels (``@op.kernel``): types, extents, directives.

``sema.instance.check_function`` gives a ``TypedFunction`` with ``tile`` set; this page says what
stands in its tables for whoever lowers it. The tables are those of lanes; what follows is added.

**Values.** The type of an expression is a ``Tensor`` (an array parameter, a result array, a view
of one: ``A``, ``A.T``, ``schedule.prefetch(A)``), a ``Tile``, a ``Scalar`` (uniform), or what
lanes have. A wide value of rank 0 (``op.sum`` of a bf16 row) is ``Tile(dtype, (), wide=True)``:
a scalar whose bits are f32. ``wide`` tiles are f32 in the IR.

**Extents.** ``TileAxis.extent`` is a ``Dim`` over names: sizes (``n``, or ``x.shape[0]`` of an
axis without a name), loop variables and other index values. A loop variable of the kernel
stands by its name; one of an inlined function as ``function.name``. A name with an ``@`` is a
value that only the run knows (a join of two extents, a mutable counter): carry extents as index
values beside their tile, and evaluate a ``Dim`` only for
``op.zeros/ones/full/empty/arange/iota`` (open extents, settled here; names in scope at that
point; with ``@`` take the capacity).

**Slices.** ``types[Subscript]``: the tile read, or for a target the place written; its axes are
the items that are slices, ``None`` or gathers, in order, then the axes not indexed.
``start:stop`` is Python's: ``extent = max(0, min(stop, n) - start)`` in steps of ``step``; a
bound left out is 0 or ``n``; a bound whose ``constants`` value is negative counts from the end
(clipped at 0). Starts are proved >= 0. Bounds are index values: ``coercions`` has the
conversion of other integers. ``capacity`` None: the axis has no known room, its extent alone
says how long it is. An item that is a ``Tile`` of integers is a gather along that axis (one
axis of the result). A subscript of a ``Tile`` takes a part (``[:, None]``, ``[:, 0:16]``,
``[0]``) or, as a target, of a buffer.

**Reads.** Where a ``Tensor`` is used as a value (``A + B``, ``op.sum(A)``, ``return A``),
``coercions`` has the ``Tile`` that is read.

**Conversions.** ``coercions[e]`` is the type a value takes where it is used: ``Scalar(d)`` a
scalar conversion as in lanes, ``Tile(d, axes, wide)`` for tiles: another dtype is a cast (from
a wide one: the rounding; to a wide one: none but the widening to f32). Shapes are not
converted: an operand of an element-wise operation whose type is a scalar is splatted, one with
fewer elements on an axis of capacity 1 is stretched; axes line up from the last.

**Operators.** ``types[e]`` of an element-wise operation is its result; the operands, coerced,
have its dtype (comparisons: one common dtype). 16- and 8-bit floats that are not wide compute
in their own dtype, each operation rounded.

**Products.** ``a @ b``, ``op.matmul(a, b, precision=)``, ``tile.mma_sync(a, b)``: operands
coerced to one dtype (f8 may mix); result wide for 16- and 8-bit floats, ``i32`` for i8, else
the dtype.

**Functions.** A library function of each element (``op.exp``, a bare ``exp``, ``math.exp`` of a
tile) has in ``calls[e]`` the instance of ``std.math``'s function for one scalar: f64 for f64
tiles, else f32; its operand is coerced to that dtype, the result cast to ``types[e]``'s dtype
where that is not wide. ``op.sqrt floor ceil round trunc abs min max where relu`` are operations
(``symbols`` names them; no ``calls``). ``symbols[e.function]`` is ``Builtin("op.exp")`` for all
spellings of a function of tiles; ``Builtin("min")``, ``Builtin("max")``, ``Builtin("abs")`` of
tiles are element-wise. A plain function of the program has its instance in ``calls`` as in
lanes; its parameters may be tiles (inline it); ``arguments`` has the expressions.

**Reductions.** ``op.sum max min mean prod any all argmax argmin var (x, axis=)``: the ``axis``
(in ``constants``; absent: all axes, one after the other) is over the extent. Result wide for
16- and 8-bit floats; sums of narrow integers and bools are i32 (u32); argmax/argmin: index.
``op.cumsum`` and ``op.softmax`` (along ``axis``, default -1) keep the shape.

**Arguments.** ``arguments[call]`` of a builtin has one entry a parameter of
``sema.builtins.TILE_FUNCTIONS[name].parameters`` (None: absent), always.

**Statements.** ``with schedule.pipeline(...)`` has its ``arguments``. ``for`` over
``op.tile_range``: the targets' ``symbols`` are the loop variables, the call's positional
arguments the stops, its ``arguments`` are (step, independent): ``constants`` of the step (1 if
absent) is an int for all axes or a tuple of ints, of ``independent`` a tuple of names. A
variable whose type is a ``Tile`` with ``buffer`` is an ``op.shared``. ``C[s] op= e`` on a
``Tensor`` with ``+``, ``-`` or ``*`` is an accumulation; ``types[target]`` is the place,
``coercions[value]`` the accumulator's type. ``schedule.name(...)`` statements stand in
``TileInfo.directives`` and are no operations.

**Results.** ``TileInfo.results`` in the order returned. A returned name whose variable has type
``Tensor`` and is no parameter is a result array: the variable is the result (``op.zeros/full``:
filled first). Any other returned expression is stored whole into its result. ``return`` ends
the body.
"""
