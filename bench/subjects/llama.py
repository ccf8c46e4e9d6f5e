"""llama.cpp, by its C interface: any library with it, or the one inside an installed package (`pip install xllamacpp`)."""

import ctypes
import importlib.util
import time
from pathlib import Path

from subjects import Broken, Missing, parts


class Batch(ctypes.Structure):
    """llama_batch of llama.h."""

    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


class Opaque(ctypes.Structure):
    """Parameters whose fields differ from version to version: made by the library, handed back to it unread."""

    _fields_ = [("bytes", ctypes.c_uint8 * 1024)]


# Results and arguments of the functions that are called; a pointer is not a C int.
SIGNATURES = {
    "llama_model_default_params": (Opaque, []),
    "llama_context_default_params": (Opaque, []),
    "llama_model_load_from_file": (ctypes.c_void_p, [ctypes.c_char_p, Opaque]),
    "llama_init_from_model": (ctypes.c_void_p, [ctypes.c_void_p, Opaque]),
    "llama_get_memory": (ctypes.c_void_p, [ctypes.c_void_p]),
    "llama_memory_clear": (None, [ctypes.c_void_p, ctypes.c_bool]),
    "llama_set_n_threads": (None, [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]),
    "llama_set_causal_attn": (None, [ctypes.c_void_p, ctypes.c_bool]),
    "llama_decode": (ctypes.c_int32, [ctypes.c_void_p, Batch]),
    "llama_synchronize": (None, [ctypes.c_void_p]),
    "llama_batch_init": (Batch, [ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]),
    "llama_print_system_info": (ctypes.c_char_p, []),
    "llama_model_is_diffusion": (ctypes.c_bool, [ctypes.c_void_p]),
}


def installed():
    """The library inside an installed package."""
    for package, pattern in [("xllamacpp", "*.so"), ("llama_cpp", "lib/libllama.*")]:
        found = importlib.util.find_spec(package)
        for place in found.submodule_search_locations if found else []:
            for library in Path(place).glob(pattern):
                return library
    raise Missing("not installed: pip install xllamacpp, or llama=LIBRARY")


class Llama:
    """A file in a context of so many positions."""

    def __init__(self, values, rows, positions, causal):
        self.library = library = ctypes.CDLL(str(values.get("llama") or installed()))
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        # Kept for as long as the library may call it.
        self.silence = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        library.llama_log_set(self.silence, None)
        library.llama_backend_init()
        model = library.llama_model_load_from_file(str(values["file"]).encode(), library.llama_model_default_params())
        if not model:
            raise Broken(f"llama.cpp cannot load {values['file']}")
        # Of a diffusion model it computes logits of all rows, whatever is asked.
        self.has_parts = not library.llama_model_is_diffusion(model)
        parameters = library.llama_context_default_params()
        if positions:
            # n_ctx, the first field of the parameters.
            parameters.bytes[0:4] = list(positions.to_bytes(4, "little"))
        self.context = library.llama_init_from_model(model, parameters)
        library.llama_set_n_threads(self.context, values["threads"], values["threads"])
        library.llama_set_causal_attn(self.context, causal)
        self.batch = library.llama_batch_init(rows, 0, 1)
        self.about = library.llama_print_system_info().decode()

    def forget(self):
        self.library.llama_memory_clear(self.library.llama_get_memory(self.context), True)

    def forward(self, first, rows, all_logits):
        """Seconds of a forward of rows from a position on, with logits of all or of the last."""
        batch = self.batch
        batch.n_tokens = rows
        for row in range(rows):
            batch.token[row], batch.pos[row], batch.n_seq_id[row] = (first + row) % 250, first + row, 1
            batch.seq_id[row][0] = 0
            batch.logits[row] = int(all_logits or row == rows - 1)
        began = time.perf_counter()
        status = self.library.llama_decode(self.context, batch)
        self.library.llama_synchronize(self.context)
        if status:
            raise Broken(f"llama.cpp's forward of {rows} rows failed with status {status}")
        return time.perf_counter() - began


class Forward(Llama):
    """One forward, each row seeing all others."""

    def __init__(self, _bench, values):
        super().__init__(values, max(values["rows"]), None, causal=False)
        self.values = values

    def turn(self):
        def seconds(rows, all_logits):
            self.forget()
            return self.forward(0, rows, all_logits)

        return list(parts(seconds, self.has_parts, self.values["rows"], self.values["repeat"]))


class Answer(Llama):
    """An answer, a token at a time behind a prompt."""

    def __init__(self, _bench, values):
        super().__init__(values, values["prompt"], values["prompt"] + values["answer"], causal=True)
        self.values = values

    def turn(self):
        prompt, answer = self.values["prompt"], self.values["answer"]
        self.forget()
        prompt_seconds = self.forward(0, prompt, False)
        # The first token comes of the prompt's forward.
        seconds = sum(self.forward(prompt + at, 1, False) for at in range(answer - 1))
        return {"prompt_seconds": prompt_seconds, "answer_seconds": seconds, "forwards": answer}
