"""Machine code that Python enters when it calls a kernel: checks, addresses, launch, in one go.

Owns the code of ``call`` and the tables of 64-bit words that it reads. It takes a call whose
arguments are NumPy arrays of a known layout, and whose launches are too small for a second thread,
or must not have one; any other call it hands to a Python function as it came. What the Python path
looks at in each call is looked at here: class, dtype, rank, sizes, strides, flags, alignment,
memory in common, faults. Must not know plans, nor how the tables are made
(``runtime/native_calls.py``).

The code is the same for all kernels and functions. Fields of Python's and NumPy's objects are where
their C interfaces fix them; ``runtime/native_calls.py`` proves it on objects of the process first.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tessera_backend.cpu.code_target import CodeTarget
from tessera_backend.llvm.text import FunctionText

CALL, TICKS = "tessera_call", "tessera_ticks"

# Words of the table behind the callable's own object.
FIRST_ENTRY, GENERAL, INTERFACE, TABLE_WORDS = range(4)

# Words of the table of addresses in Python; the last two are written by both sides. ALONE: 1 while
# a launch has one thread, however long it takes.
(VECTORCALL, SAVE_THREAD, RESTORE_THREAD, THREAD_IDENT, AS_WORD, ERROR_IS, CLEAR_ERROR, INCREF,
 DECREF, NONE, REFUSAL, LIMIT, ALONE, MAIN_THREAD, WATCHING, COUNTER, INTERFACE_WORDS) = range(
    17)  # fmt: skip

# Words of an entry: one layout of calls. An entry of RETIRED arguments is for no call: a launch of
# it failed, and what its memory holds is not known.
(NEXT, BUSY, POSITIONAL, NAMED, NAMES, ARGUMENTS, PAIRS, PAIR_LIST, STEPS, STEP_LIST, ALIGNED,
 RESULT, PLACES, OBJECTS, ENTRY_WORDS) = range(15)  # fmt: skip
RETIRED = -1

# An argument. Of an array all words but ENCODER are used, of a number TYPE and ENCODER. LOW: bits
# that the address does not have.
ARRAY, NUMBER, SAME = range(3)
KIND, TYPE, DTYPE, RANK, SIZES, STRIDES, FLAGS, LOW, ENCODER = range(9)
ARGUMENT_WORDS = 9
# NPY_ARRAY_ALIGNED, NPY_ARRAY_WRITEABLE and NPY_ARRAY_WARN_ON_WRITE, of 32 bits.
FLAG_MASK = 0x80000500

# A pair of arrays whose memory may not meet: their places, and the distances of the addresses.
PAIR_WORDS = 4

# A step. MAKE: a callable, and the place of the array it gives. FILL: an address, words, what each
# becomes. HELD: an array that must be where it was, with as many bytes: its object, address, rank,
# sizes. CLEAN: an address, words that must be zeros, else what raises.
LAUNCH, MAKE, FILL, HELD, CLEAN = range(5)
(STEP_KIND, ENTRY, SLOTS, COUNT, TOTAL, AXES, SCRATCH, FILLED, FILLS, ENCODED, ENCODES, FAULT,
 COMPLAINT, GROUP_TIME, ZEROED, ZEROS, STEP_WORDS) = range(17)  # fmt: skip
FILL_WORDS, ENCODE_WORDS, ZERO_WORDS = 3, 2, 2

STOP = 1 << 62
WORTH_WAKING = 40e-6  # seconds a launch takes for which another thread is woken


def stub_text(target: CodeTarget, header: int, tuple_items: int) -> str:
    """The LLVM module. ``header``: bytes of an object's header; ``tuple_items``: bytes to the items
    of a tuple."""
    return _Stub(target, header, tuple_items).module()


class _Stub:
    def __init__(self, target: CodeTarget, header: int, tuple_items: int) -> None:
        self._target = target
        self._header, self._tuple_items = header, tuple_items
        self._cc = f"{target.convention} " if target.convention else ""
        self.f = FunctionText()

    # --- pieces ---------------------------------------------------------------------------

    def at(self, base: str, index: int | str) -> str:
        return self.f.value(f"getelementptr i64, ptr {base}, i64 {index}")

    def word(self, base: str, index: int | str, kind: str = "i64") -> str:
        return self.f.value(f"load {kind}, ptr {self.at(base, index)}, align 8")

    def put(self, base: str, index: int | str, value: str, kind: str = "i64") -> None:
        self.f.line(f"store {kind} {value}, ptr {self.at(base, index)}, align 8")

    def row(self, base: str, index: str, words: int) -> str:
        return self.at(base, self.f.value(f"mul i64 {index}, {words}"))

    def field(self, obj: str, offset: int, kind: str = "i64") -> str:
        """What stands so many bytes behind the header of an object."""
        place = self.f.value(f"getelementptr i8, ptr {obj}, i64 {self._header + offset}")
        return self.f.value(f"load {kind}, ptr {place}")

    def call(self, function: str, signature: str, arguments: str) -> str:
        return self.f.value(f"call {self._cc}{signature} {function}({arguments})")

    def need(self, condition: str, otherwise: str) -> None:
        """Goes on where the condition holds."""
        on = self.f.label("on")
        self.f.branch_if(condition, on, otherwise)
        self.f.place(on)

    def same(self, a: str, b: str, otherwise: str, kind: str = "i64") -> None:
        self.need(self.f.value(f"icmp eq {kind} {a}, {b}"), otherwise)

    @contextmanager
    def loop(self, count: str) -> Generator[str]:
        f = self.f
        counter = f.slot("i64")
        f.line(f"store i64 0, ptr {counter}")
        head, body, end = f.label("head"), f.label("body"), f.label("end")
        f.place(head)
        index = f.value(f"load i64, ptr {counter}")
        f.branch_if(f.value(f"icmp slt i64 {index}, {count}"), body, end)
        f.place(body)
        yield index
        f.line(f"store i64 {f.value(f'add i64 {index}, 1')}, ptr {counter}")
        f.branch(head)
        f.place(end)

    @contextmanager
    def when(self, condition: str) -> Generator[None]:
        then, end = self.f.label("then"), self.f.label("end")
        self.f.branch_if(condition, then, end)
        self.f.place(then)
        yield
        self.f.place(end)

    # --- the function ---------------------------------------------------------------------

    def module(self) -> str:
        f = self.f
        own = self.field("%self", 0, "ptr")
        self.own, self.api = own, self.word(own, INTERFACE, "ptr")
        current = f.slot("ptr", initial="null")
        f.line(f"store ptr {self.word(own, FIRST_ENTRY, 'ptr')}, ptr {current}")
        f.place("try")
        self.e = f.value(f"load ptr, ptr {current}")
        self.need(f.value(f"icmp ne ptr {self.e}, null"), "general")
        self._fits("next")
        self._may_run("general")
        self.put(self.e, BUSY, "1")
        self._encode()
        self._run()
        self._hand_over()
        f.place("next")
        f.line(f"store ptr {self.word(self.e, NEXT, 'ptr')}, ptr {current}")
        f.branch("try")
        f.place("fail")
        self._drop_made()
        self.put(self.e, POSITIONAL, str(RETIRED))
        self.put(self.e, BUSY, "0")
        f.terminate("ret ptr null")
        self._unfit()
        f.place("general")
        answer = self._vectorcall(self.word(own, GENERAL, "ptr"), "%args, i64 %n, ptr %kw")
        f.terminate(f"ret ptr {answer}")
        return self._module(f.body())

    def _unfit(self) -> None:
        """A number that its parameter does not take is told by the other way; what else its encoder
        raised (Ctrl-C came) is the answer."""
        f = self.f
        f.place("unfit")
        refusal = self.word(self.api, REFUSAL, "ptr")
        refused = self.call(self.word(self.api, ERROR_IS, "ptr"), "i32", f"ptr {refusal}")
        with self.when(f.value(f"icmp eq i32 {refused}, 0")):
            self.put(self.e, BUSY, "0")
            f.terminate("ret ptr null")
        f.line(f"call {self._cc}void {self.word(self.api, CLEAR_ERROR, 'ptr')}()")
        self.put(self.e, BUSY, "0")
        f.branch("general")

    def _module(self, body: str) -> str:
        target = self._target
        ticks = "  %t = call i64 @llvm.readcyclecounter()\n"
        if not target.triple.startswith("x86_64"):
            ticks = '  %t = call i64 asm sideeffect "mrs $0, cntvct_el0", "=r"()\n'
        attributes = "nounwind" + ("" if target.red_zone else " noredzone")
        return (
            f'target triple = "{target.triple}"\n'
            f"declare i64 @llvm.readcyclecounter()\n"
            f"declare i64 @llvm.umin.i64(i64, i64)\n"
            f"declare i64 @llvm.umax.i64(i64, i64)\n"
            f"define {self._cc}i64 @{TICKS}() #0 {{\n{ticks}  ret i64 %t\n}}\n"
            f"define {self._cc}ptr @{CALL}(ptr %self, ptr %args, i64 %n, ptr %kw) #0 {{\n"
            f"{body}\n}}\n"
            f'attributes #0 = {{ {attributes} "no-builtins" "target-cpu"="{target.cpu}" '
            f'"target-features"="{target.features}" }}\n'
        )

    def _vectorcall(self, function: str, rest: str) -> str:
        return self.call(
            self.word(self.api, VECTORCALL, "ptr"), "ptr", f"ptr {function}, ptr {rest}"
        )

    # --- whether an entry is for this call ------------------------------------------------

    def _fits(self, no: str) -> None:
        """Every argument is what the entry is for. Its places take the addresses."""
        f, e = self.f, self.e
        self.same(self.word(e, BUSY), "0", no)
        self.same("%n", self.word(e, POSITIONAL), no)
        named = self.word(e, NAMED)
        with self.when(f.value("icmp eq ptr %kw, null")):
            self.same(named, "0", no)
        with self.when(f.value("icmp ne ptr %kw, null")):
            self.same(named, self.field("%kw", 0), no)
            with self.loop(named) as k:
                first = f.value(f"getelementptr i8, ptr %kw, i64 {self._tuple_items}")
                self.same(self.word(first, k), self.word(self.word(e, NAMES, "ptr"), k), no)
        every = f.slot("i64")
        f.line(f"store i64 0, ptr {every}")
        count = f.value(f"add i64 %n, {named}")
        self.places = self.word(e, PLACES, "ptr")
        with self.loop(count) as i:
            a = self.row(self.word(e, ARGUMENTS, "ptr"), i, ARGUMENT_WORDS)
            self._argument(a, self.word("%args", i, "ptr"), i, every, no)
        low = f.value(f"and i64 {f.value(f'load i64, ptr {every}')}, 15")
        aligned = f.value(f"zext i1 {f.value(f'icmp eq i64 {low}, 0')} to i64")
        self.same(aligned, self.word(e, ALIGNED), no)

    def _argument(self, a: str, obj: str, i: str, every: str, no: str) -> None:
        f = self.f
        kind, wanted = self.word(a, KIND), self.word(a, TYPE)
        other, array, done = f.label("other"), f.label("array"), f.label("done")
        f.branch_if(f.value(f"icmp eq i64 {kind}, {SAME}"), other, array)
        f.place(other)
        self.same(f.value(f"ptrtoint ptr {obj} to i64"), wanted, no)
        f.branch(done)
        f.place(array)
        self.same(self.field(obj, -8), wanted, no)
        self.need(f.value(f"icmp eq i64 {kind}, {ARRAY}"), done)
        # The fields of an array: data, rank, sizes, strides, base, dtype, flags.
        self.same(self.field(obj, 40), self.word(a, DTYPE), no)
        rank = f.value(f"sext i32 {self.field(obj, 8, 'i32')} to i64")
        self.same(rank, self.word(a, RANK), no)
        flags = f.value(f"and i32 {self.field(obj, 48, 'i32')}, {FLAG_MASK - (1 << 32)}")
        self.same(f.value(f"zext i32 {flags} to i64"), self.word(a, FLAGS), no)
        sizes, strides = self.field(obj, 16, "ptr"), self.field(obj, 24, "ptr")
        with self.loop(rank) as k:
            self.same(self.word(sizes, k), self.word(self.word(a, SIZES, "ptr"), k), no)
            self.same(self.word(strides, k), self.word(self.word(a, STRIDES, "ptr"), k), no)
        data = self.field(obj, 0)
        self.same(f.value(f"and i64 {data}, {self.word(a, LOW)}"), "0", no)
        self.put(self.places, i, data)
        both = f.value(f"or i64 {f.value(f'load i64, ptr {every}')}, {data}")
        f.line(f"store i64 {both}, ptr {every}")
        f.place(done)

    def _may_run(self, no: str) -> None:
        """No memory in common, nothing to wake a thread for, and Ctrl-C is watched."""
        f, e = self.f, self.e
        with self.loop(self.word(e, PAIRS)) as k:
            pair = self.row(self.word(e, PAIR_LIST, "ptr"), k, PAIR_WORDS)
            first = self.word(self.places, self.word(pair, 0))
            distance = f.value(f"sub i64 {self.word(self.places, self.word(pair, 1))}, {first}")
            above = f.value(f"icmp slt i64 {self.word(pair, 2)}, {distance}")
            below = f.value(f"icmp slt i64 {distance}, {self.word(pair, 3)}")
            meet = f.value(f"and i1 {above}, {below}")
            self.need(f.value(f"xor i1 {meet}, true"), no)
        with self.loop(self.word(e, STEPS)) as k:
            step = self.row(self.word(e, STEP_LIST, "ptr"), k, STEP_WORDS)
            with self.when(f.value(f"icmp eq i64 {self.word(step, STEP_KIND)}, {HELD}")):
                self._held(step, no)
            with self.when(f.value(f"icmp eq i64 {self.word(step, STEP_KIND)}, {LAUNCH}")):
                total = self.word(step, TOTAL)
                each = f.value(f"load double, ptr {self.word(step, GROUP_TIME, 'ptr')}")
                time = f.value(f"fmul double {f.value(f'sitofp i64 {total} to double')}, {each}")
                small = f.value(f"fcmp olt double {time}, {_double(WORTH_WAKING)}")
                single = f.value(f"icmp sle i64 {total}, 1")
                here = f.value(f"or i1 {small}, {single}")
                self.need(f.value(f"or i1 {here}, {self._alone()}"), no)
        ident = self._thread()
        self.is_main = f.value(f"icmp eq i64 {ident}, {self.word(self.api, MAIN_THREAD)}")
        with self.when(self.is_main):
            self.same(self.word(self.api, WATCHING), "1", no)

    def _alone(self) -> str:
        return self.f.value(f"icmp ne i64 {self.word(self.api, ALONE)}, 0")

    def _thread(self) -> str:
        """An ``unsigned long``, which has 32 bits on Windows."""
        ident = self.word(self.api, THREAD_IDENT, "ptr")
        if not self._cc:
            return self.call(ident, "i64", "")
        return self.f.value(f"zext i32 {self.call(ident, 'i32', '')} to i64")

    def _held(self, step: str, no: str) -> None:
        obj = self.word(step, ENTRY, "ptr")
        self.same(self.field(obj, 0), self.word(step, SLOTS), no)
        rank = self.f.value(f"sext i32 {self.field(obj, 8, 'i32')} to i64")
        self.same(rank, self.word(step, COUNT), no)
        sizes = self.field(obj, 16, "ptr")
        with self.loop(rank) as k:
            self.same(self.word(sizes, k), self.word(self.word(step, TOTAL, "ptr"), k), no)

    # --- doing it -------------------------------------------------------------------------

    def _encode(self) -> None:
        """Numbers become bits before anything is made: what does not fit is told by the other
        way."""
        f, e = self.f, self.e
        with self.loop(self.word(e, STEPS)) as k:
            step = self.row(self.word(e, STEP_LIST, "ptr"), k, STEP_WORDS)
            launch = f.value(f"icmp eq i64 {self.word(step, STEP_KIND)}, {LAUNCH}")
            with self.when(launch):
                count = self.word(step, ENCODED)
                with self.loop(count) as j:
                    self._number(step, j)

    def _number(self, step: str, j: str) -> None:
        f = self.f
        pair = self.row(self.word(step, ENCODES, "ptr"), j, ENCODE_WORDS)
        number = self.word(pair, 1)
        a = self.row(self.word(self.e, ARGUMENTS, "ptr"), number, ARGUMENT_WORDS)
        given = self.at("%args", number)
        bits = self._vectorcall(self.word(a, ENCODER, "ptr"), f"{given}, i64 1, ptr null")
        self.need(f.value(f"icmp ne ptr {bits}, null"), "unfit")
        value = self.call(self.word(self.api, AS_WORD, "ptr"), "i64", f"ptr {bits}")
        self._decref(bits)
        self.put(self.word(step, SLOTS, "ptr"), self.word(pair, 0), value)

    def _decref(self, obj: str) -> None:
        self.f.line(f"call {self._cc}void {self.word(self.api, DECREF, 'ptr')}(ptr {obj})")

    def _run(self) -> None:
        f, e = self.f, self.e
        with self.loop(self.word(e, STEPS)) as k:
            step = self.row(self.word(e, STEP_LIST, "ptr"), k, STEP_WORDS)
            kind = self.word(step, STEP_KIND)
            with self.when(f.value(f"icmp eq i64 {kind}, {FILL}")):
                words, each = self.word(step, SLOTS), self.word(step, COUNT)
                self._fill(self.word(step, ENTRY, "ptr"), words, each)
            with self.when(f.value(f"icmp eq i64 {kind}, {MAKE}")):
                place = self.word(step, SLOTS)
                made = self._vectorcall(self.word(step, ENTRY, "ptr"), "null, i64 0, ptr null")
                self.need(f.value(f"icmp ne ptr {made}, null"), "fail")
                self.put(self.word(e, OBJECTS, "ptr"), 0, made, "ptr")
                self.put(self.places, place, self.field(made, 0))
            with self.when(f.value(f"icmp eq i64 {kind}, {LAUNCH}")):
                self._launch(step)
            with self.when(f.value(f"icmp eq i64 {kind}, {CLEAN}")):
                self._look_at(step)

    def _look_at(self, step: str) -> None:
        f, clean = self.f, self.word(step, ENTRY, "ptr")
        with self.loop(self.word(step, SLOTS)) as i:
            full = f.value(f"icmp ne i64 {self.word(clean, i)}, 0")
            with self.when(full):
                self._complain(self.word(step, COMPLAINT, "ptr"))

    def _fill(self, base: str, words: str, each: str) -> None:
        with self.loop(words) as i:
            self.put(base, i, each)

    def _launch(self, step: str) -> None:
        f, api = self.f, self.api
        slots = self.word(step, SLOTS, "ptr")
        with self.loop(self.word(step, FILLED)) as k:
            fill = self.row(self.word(step, FILLS, "ptr"), k, FILL_WORDS)
            base = self.word(self.places, self.word(fill, 1))
            self.put(slots, self.word(fill, 0), f.value(f"add i64 {base}, {self.word(fill, 2)}"))
        with self.loop(self.word(step, ZEROED)) as k:
            zero = self.row(self.word(step, ZEROS, "ptr"), k, ZERO_WORDS)
            self._zero_bytes(self.word(slots, self.word(zero, 0), "ptr"), self.word(zero, 1))
        total = self.word(step, TOTAL)
        # Nobody may stop another thread, and what stopped this one late must not reach it.
        shared = self.word(step, COUNT, "ptr")
        counter = f.value(f"select i1 {self.is_main}, ptr {shared}, ptr {f.slot('i64', 8)}")
        f.line(f"store atomic i64 0, ptr {counter} monotonic, align 8")
        with self.when(self.is_main):
            self.put(api, COUNTER, counter, "ptr")
        state = self.call(self.word(api, SAVE_THREAD, "ptr"), "ptr", "")
        begin = f.value(f"call {self._cc}i64 @{TICKS}()")
        # Between chunks a launch sees that it is to stop.
        part = f.value(f"call i64 @llvm.umin.i64(i64 {f.value(f'lshr i64 {total}, 3')}, i64 4096)")
        part = f.value(f"call i64 @llvm.umax.i64(i64 {part}, i64 1)")
        chunk = f.value(f"select i1 {self._alone()}, i64 {part}, i64 {total}")
        axes = self.word(step, AXES, "ptr")
        sizes = ", ".join(f"i64 {self.word(axes, i)}" for i in range(3))
        f.line(
            f"call {self._cc}void {self.word(step, ENTRY, 'ptr')}(ptr {slots}, ptr {counter}, "
            f"i64 {total}, {sizes}, i64 {chunk}, ptr {self.word(step, SCRATCH, 'ptr')})"
        )
        taken = f.value(f"sub i64 {f.value(f'call {self._cc}i64 @{TICKS}()')}, {begin}")
        f.line(f"call {self._cc}void {self.word(api, RESTORE_THREAD, 'ptr')}(ptr {state})")
        with self.when(self.is_main):
            self.put(api, COUNTER, "null", "ptr")
        with self.when(f.value(f"icmp ugt i64 {taken}, {self.word(api, LIMIT)}")):
            # Longer than it was: the other way measures, and decides anew.
            f.line(f"store double 1.0, ptr {self.word(step, GROUP_TIME, 'ptr')}")
        fault = f.value(f"icmp ne i64 {self.word(self.word(step, FAULT, 'ptr'), 0)}, 0")
        after = f.value(f"load atomic i64, ptr {counter} monotonic, align 8")
        stopped = f.value(f"icmp uge i64 {after}, {STOP}")
        with self.when(f.value(f"or i1 {fault}, {stopped}")):
            self._complain(self.word(step, COMPLAINT, "ptr"))

    def _complain(self, function: str) -> None:
        """A Python function that raises. What it gives all the same is let go."""
        f = self.f
        said = self._vectorcall(function, "null, i64 0, ptr null")
        with self.when(f.value(f"icmp ne ptr {said}, null")):
            self._decref(said)
        f.branch("fail")
        f.place(f.label("unreached"))

    def _zero_bytes(self, base: str, size: str) -> None:
        with self.loop(size) as i:
            place = self.f.value(f"getelementptr i8, ptr {base}, i64 {i}")
            self.f.line(f"store i8 0, ptr {place}")

    def _hand_over(self) -> None:
        f, e = self.f, self.e
        self.put(e, BUSY, "0")
        objects = self.word(e, OBJECTS, "ptr")
        with self.when(f.value(f"icmp ne i64 {self.word(e, RESULT)}, 0")):
            made = self.word(objects, 0, "ptr")
            self.put(objects, 0, "null", "ptr")
            f.terminate(f"ret ptr {made}")
        none = self.word(self.api, NONE, "ptr")
        f.line(f"call {self._cc}void {self.word(self.api, INCREF, 'ptr')}(ptr {none})")
        f.terminate(f"ret ptr {none}")

    def _drop_made(self) -> None:
        f = self.f
        objects = self.word(self.e, OBJECTS, "ptr")
        made = self.word(objects, 0, "ptr")
        with self.when(f.value(f"icmp ne ptr {made}, null")):
            self.put(objects, 0, "null", "ptr")
            self._decref(made)


def _double(number: float) -> str:
    import struct

    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
