"""Element types of caches, with the bytes of their scales. No torch: a name and two numbers each."""

from enum import StrEnum

from octavo.errors import SpecError


class CacheDType(StrEnum):
    """The element type of a cache.

    The `*_per_token_head` types store one float32 scale beside each vector (one token of one head,
    K and V apart); plain fp8 has one scale per tensor, which lives with the weights.
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    UINT8 = "uint8"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    FP8_PER_TOKEN_HEAD = "fp8_per_token_head"  # noqa: S105 - a token of text
    INT8_PER_TOKEN_HEAD = "int8_per_token_head"  # noqa: S105 - a token of text
    INT4_PER_TOKEN_HEAD = "int4_per_token_head"  # noqa: S105 - a token of text

    @classmethod
    def parse(cls, name: object) -> "CacheDType":
        """The type that `name` means, in any of the spellings that configs and flags use; a torch dtype is one."""
        if isinstance(name, CacheDType):
            return name
        key = str(name).lower().removeprefix("torch.")
        try:
            return cls(_ALIASES.get(key, key))
        except ValueError:
            known = ", ".join([*cls, *_ALIASES])
            raise SpecError(f"unknown dtype {name!r}; known are: {known}") from None

    @property
    def element_bits(self) -> int:
        return _ELEMENT_BITS[self]

    @property
    def scale_bytes(self) -> int:
        """Bytes of scale beside each vector."""
        return 4 if self.value.endswith("_per_token_head") else 0

    @property
    def alignment_bytes(self) -> int:
        """An address of this type must be a multiple of this."""
        return 4 if self.scale_bytes else max(1, self.element_bits // 8)

    def vector_bytes(self, num_elements: int) -> int:
        """Bytes of one vector of `num_elements`, its scale included."""
        if num_elements == 0:
            return 0
        return -(-num_elements * self.element_bits // 8) + self.scale_bytes

    def array_bytes(self, num_elements: int) -> int:
        """Bytes of `num_elements` packed without scales of their own."""
        return -(-num_elements * self.element_bits // 8)


_ALIASES = {
    "fp32": "float32",
    "float": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp8": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "int8": "int8_per_token_head",
    "int4": "int4_per_token_head",
}

_ELEMENT_BITS = {
    CacheDType.FLOAT32: 32,
    CacheDType.FLOAT16: 16,
    CacheDType.BFLOAT16: 16,
    CacheDType.UINT8: 8,
    CacheDType.FP8_E4M3: 8,
    CacheDType.FP8_E5M2: 8,
    CacheDType.FP8_PER_TOKEN_HEAD: 8,
    CacheDType.INT8_PER_TOKEN_HEAD: 8,
    CacheDType.INT4_PER_TOKEN_HEAD: 4,
}
