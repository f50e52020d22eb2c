#!/usr/bin/env python3
"""Reads a gpuckpt store. Written from docs/FORMAT.md alone, to show that the page suffices.

format_reader.py STORE                 lists the snapshots
format_reader.py STORE ID OUTPUT_DIR   extracts one: SPACE-ADDRESS files (hexadecimal) for each extent of data, blob-NAME

Needs libzstd, liblz4 and libxxhash (through ctypes), nothing else.
"""
import ctypes
import ctypes.util
import functools
import json
import os
import struct
import sys

zstd = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
lz4 = ctypes.CDLL(ctypes.util.find_library("lz4") or "liblz4.so.1")
xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


xxhash.XXH3_64bits.restype = ctypes.c_uint64
xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
xxhash.XXH3_128bits.restype = Hash128
xxhash.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
lz4.LZ4_decompress_safe.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
zstd.ZSTD_decompress.restype = ctypes.c_size_t
zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]


def hash64(data):
    return xxhash.XXH3_64bits(data, len(data))


def sum_of(data):
    h = xxhash.XXH3_128bits(data, len(data))
    return struct.pack(">QQ", h.high, h.low)


def decompress(data, length):
    out = ctypes.create_string_buffer(max(length, 1))
    n = zstd.ZSTD_decompress(out, length, data, len(data))
    check(n == length, "zstd data does not have the stated length")
    return out.raw[:length]


def decompress_lz4(data, length):
    out = ctypes.create_string_buffer(max(length, 1))
    n = lz4.LZ4_decompress_safe(bytes(data), out, len(data), length)
    check(n == length, "LZ4 data does not have the stated length")
    return out.raw[:length]


def check(condition, what):
    if not condition:
        raise SystemExit(f"damaged: {what}")


def chacha_block(words, number):
    """ChaCha20 for a key of 16 bytes: the state after 20 rounds, plus the state before."""
    start = [0x61707865, 0x3120646e, 0x79622d36, 0x6b206574, *words, *words, number, 0, 0, 0]
    s = list(start)
    def quarter(a, b, c, d):
        for x, y, z, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[x] = (s[x] + s[y]) & 0xffffffff
            v = s[z] ^ s[x]
            s[z] = ((v << n) | (v >> (32 - n))) & 0xffffffff
    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((a + b) & 0xffffffff for a, b in zip(s, start)))


@functools.cache
def table_of(key):
    """(the words of NH's key, per sum its 66 terms)"""
    stream = b"".join(chacha_block(struct.unpack("<4I", key), i) for i in range(121))
    words = struct.unpack_from("<1408I", stream)
    terms = [int.from_bytes(stream[at:at + 16], "little") for at in range(5632, 5632 + 2112, 16)]
    return words, (terms[:66], terms[66:])


def name_of(key, data):
    words, sums = table_of(key)
    lanes = []
    for block in range(0, len(data), 4096):
        piece = data[block:block + 4096]
        piece += bytes(-len(piece) % 64)
        m = struct.unpack(f"<{len(piece) // 4}I", piece)
        for lane in range(4):
            k = words[128 * lane:]
            lanes.append(sum(((m[i] + k[i]) & 0xffffffff) * ((m[i + 1] + k[i + 1]) & 0xffffffff)
                             for i in range(0, len(m), 2)) % 2**64)
    values = [t[0] + t[1] * len(data) + sum(a * b for a, b in zip(t[2:], lanes)) for t in sums]
    return b"".join((v % 2**128 >> 64).to_bytes(8, "big") for v in values)


BLOB_SPACE = 1 << 63


def huffman_codes(lengths):
    """As RFC 1951, 3.2.2: (length, code) -> value."""
    check(max(lengths) <= 12 and sum(4096 >> n for n in lengths if n) == 4096, "the lengths of a code")
    codes, code = {}, 0
    for length in range(1, 13):
        for value in range(256):
            if lengths[value] == length:
                codes[length, code] = value
                code += 1
        code <<= 1
    return codes


def huffman_stream(codes, data, count):
    out, length, code = bytearray(), 0, 0
    for bit in (byte >> i & 1 for byte in data for i in range(8)):
        length, code = length + 1, code << 1 | bit
        value = codes.get((length, code))
        if value is not None:
            out.append(value)
            length = code = 0
            if len(out) == count:
                return out
    check(count == 0, "a stream of codes ends early")
    return out


def huffman(stored, elements):
    codes = huffman_codes([stored[i // 2] >> i % 2 * 4 & 15 for i in range(256)])
    ends = list(struct.unpack_from("<III", stored, 128))
    ends.append(len(stored) - 140 - sum(ends))
    at, out = 140, bytearray()
    for number, length in enumerate(ends):
        count = elements // 4 if number < 3 else elements - len(out)
        out += huffman_stream(codes, stored[at:at + length], count)
        at += length
    return bytes(out)


def join_planes(codec, stored, plain_length):
    width = stored[0]
    elements = plain_length // width
    at, out = 1 + 5 * width, bytearray(plain_length)
    for plane in range(width):
        mode, length = struct.unpack_from("<BI", stored, 1 + 5 * plane)
        data = stored[at:at + length]
        check(mode in (0, 1) or (mode == 2 and codec == 3), "a plane")
        out[plane:elements * width:width] = (data if mode == 0 else
                                             decompress(data, elements) if mode == 1 else huffman(data, elements))
        at += length
    out[elements * width:] = stored[at:]
    return bytes(out)


class Pack:
    def __init__(self, key, path, pack_id, file_length, table_checksum):
        self.key = key
        with open(path, "rb") as file:
            self.data = file.read()
        data = self.data
        check(len(data) == file_length, f"{path}: length")
        magic, version, flags, own_id, own_key, _, checksum = struct.unpack_from("<8sII16s16s8sQ", data, 0)
        check(magic == b"GPCKPACK" and own_id == pack_id and checksum == hash64(data[:56]), f"{path}: header")
        check(version == 3 and own_key == key, f"{path}: version {version}, or another store's key")
        check(flags == 0, f"{path}: encrypted, which this reader does not read")
        trailer = data[-72:]
        (table, frames, chunks, _, own_id, table_sum, version, _, checksum,
         magic) = struct.unpack("<QIIQ16sQIIQ8s", trailer)
        check(magic == b"GPCKPEND" and own_id == pack_id and checksum == hash64(trailer[:56]), f"{path}: trailer")
        check(table_sum == table_checksum == hash64(data[table:-72]), f"{path}: table")
        self.frames = [struct.unpack_from("<QIIIIIIQ", data, table + 40 * i) for i in range(frames)]
        self.chunks = [struct.unpack_from("<16sI", data, table + 40 * frames + 20 * i) for i in range(chunks)]
        self.plain = {}

    def chunk(self, number):
        for index, (offset, codec, plain_length, stored_length, count, first, _, checksum) in enumerate(self.frames):
            if not first <= number < first + count:
                continue
            if index not in self.plain:
                body = offset + 32 + 4 * count
                head = self.data[offset:offset + 32]
                magic, codec2, plain2, stored2, count2, _, checksum2 = struct.unpack("<IIIIIIQ", head)
                check(head[:4] == b"Fram" and (codec2, plain2, stored2, count2, checksum2) ==
                      (codec, plain_length, stored_length, count, checksum), f"frame {index}: header")
                stored = self.data[body:body + stored_length]
                check(checksum == hash64(head[:24] + self.data[offset + 32:body] + stored), f"frame {index}: checksum")
                check(codec in (0, 1, 2, 3, 4), f"frame {index}: codec {codec}")
                self.plain[index] = (stored if codec == 0 else decompress(stored, plain_length) if codec == 1 else
                                     decompress_lz4(stored, plain_length) if codec == 4 else
                                     join_planes(codec, stored, plain_length))
            at = sum(length for _, length in self.chunks[first:number])
            name, length = self.chunks[number]
            data = self.plain[index][at:at + length]
            check(name_of(self.key, data) == name, f"chunk {number}")
            return data
        raise SystemExit(f"damaged: no chunk {number}")


def read_manifest(path):
    with open(path, "rb") as file:
        data = file.read()
    magic, version, flags, meta_length, stored, plain, meta_sum, _, checksum = struct.unpack_from("<8sIIQQQQQQ", data, 0)
    check(magic == b"GPCKSNAP" and checksum == hash64(data[:56]), f"{path}: header")
    check(version == 2, f"{path}: version {version}")
    check(flags == 0, f"{path}: encrypted, which this reader does not read")
    check(len(data) == 64 + meta_length + stored + 24, f"{path}: length")
    check(data[-8:] == b"GPCKSEND" and data[-24:-8] == sum_of(data[:-24]), f"{path}: checksum")
    meta = data[64:64 + meta_length]
    check(meta_sum == hash64(meta), f"{path}: description")
    return json.loads(meta), decompress(data[64 + meta_length:-24], plain)


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def unit_of(space):
    return 65536 if space >= 0x1000000 else 4096


def read_layer(data):
    """[(space, [(address, length, pack, chunk)])]; pack is None for a hole, "zero", or (id, length, sum)."""
    packs, spaces = struct.unpack_from("<II", data, 0)
    at = 8
    refs = [struct.unpack_from("<16sQQ", data, at + 32 * i) for i in range(packs)]
    at += 32 * packs
    out = []
    for _ in range(spaces):
        space, runs = struct.unpack_from("<QQ", data, at)
        at += 16
        places, kinds, end = [], [], 0
        for _ in range(runs):
            gap, at = read_varint(data, at)
            length, at = read_varint(data, at)
            places.append((end + gap, length))
            end += gap + length
        for _ in range(runs):
            kind, at = read_varint(data, at)
            kinds.append(None if kind == 0 else "zero" if kind == 1 else refs[kind - 2])
        entries, following = [], 0
        for (address, length), kind in zip(places, kinds):
            chunk = 0
            if isinstance(kind, tuple):
                step, at = read_varint(data, at)
                chunk = following + ((step >> 1) ^ -(step & 1))
                following = chunk + (address + length - 1) // unit_of(space) - address // unit_of(space) + 1
            entries.append((address, length, kind, chunk))
        out.append((space, entries))
    check(at == len(data), "bytes are left over in a layer")
    return out


def read_layer_file(store, name, length):
    path = f"{store}/layers/{name.hex()}.layer"
    with open(path, "rb") as file:
        data = file.read()
    magic, version, flags, stored, plain, _, checksum = struct.unpack_from("<8sIIQQ24sQ", data, 0)
    check(len(data) == length and sum_of(data) == name, f"{path}: length or sum")
    check(magic == b"GPCKLAYR" and version == 1 and checksum == hash64(data[:56]), f"{path}: header")
    check(flags == 0 and len(data) == 64 + stored, f"{path}: header")
    return read_layer(decompress(data[64:], plain))


def extract(store, key, snapshot, output):
    meta, body = read_manifest(f"{store}/snapshots/{snapshot}.manifest")
    check(meta["id"] == snapshot, "the manifest is another snapshot's")
    layers, spaces, blobs, _, top = struct.unpack_from("<IIIIQ", body, 0)
    at = 24
    stack = []
    for _ in range(layers):
        name, length, _ = struct.unpack_from("<16sQQ", body, at)
        stack.append(read_layer_file(store, name, length))
        at += 32
    stack.append(read_layer(body[at:at + top]))
    at += top
    # One entry per chunk, or per unit of zeros: simple, and large enough for a test.
    pieces = {}  # space -> address -> (length, pack or "zero", chunk)
    for layer in stack:
        for space, entries in layer:
            here, unit = pieces.setdefault(space, {}), unit_of(space)
            for address, length, kind, chunk in entries:
                end = address + length
                for old in [a for a in here if address <= a < end]:
                    del here[old]
                while address < end and kind is not None:
                    step = min(end, (address // unit + 1) * unit) - address
                    here[address] = (step, kind, chunk)
                    address, chunk = address + step, chunk + 1
    opened = {}
    contents = {}  # space -> list of [address, bytes], neighbours joined
    for _ in range(spaces):
        space, captured, digest = struct.unpack_from("<QQ16s", body, at)
        at += 32
        joined = contents.setdefault(space, [])
        hashed, zeros, total = b"", None, 0
        for address, (length, kind, chunk) in sorted(pieces.get(space, {}).items()):
            if zeros and (kind != "zero" or zeros[1] != address):
                hashed += struct.pack("<QQ16s", zeros[0], zeros[1] - zeros[0], bytes(16))
                zeros = None
            if kind == "zero":
                zeros = (zeros[0] if zeros else address, address + length)
                data = bytes(length)
            else:
                if kind not in opened:
                    opened[kind] = Pack(key, f"{store}/packs/{kind[0].hex()}.pack", *kind)
                data = opened[kind].chunk(chunk)
                hashed += struct.pack("<QQ16s", address, length, opened[kind].chunks[chunk][0])
            check(len(data) == length, f"chunk at {address:#x}")
            total += length
            if joined and joined[-1][0] + len(joined[-1][1]) == address:
                joined[-1][1] += data
            else:
                joined.append([address, bytearray(data)])
        if zeros:
            hashed += struct.pack("<QQ16s", zeros[0], zeros[1] - zeros[0], bytes(16))
        check(total == captured, f"bytes of space {space:#x}")
        check(digest == sum_of(hashed), f"digest of space {space:#x}")
    os.makedirs(output, exist_ok=True)
    for space, joined in contents.items():
        for address, data in joined:
            if space < BLOB_SPACE:
                with open(f"{output}/{space:x}-{address:x}", "wb") as file:
                    file.write(data)
    for index in range(blobs):
        length, name_length, _ = struct.unpack_from("<QII", body, at)
        name = body[at + 16:at + 16 + name_length].decode()
        at += 16 + name_length
        data = b"".join(bytes(data) for _, data in contents.get(BLOB_SPACE | index, []))
        check(len(data) == length, f"blob {name}")
        with open(f"{output}/blob-{name.replace('/', '_')}", "wb") as file:
            file.write(data)
    check(at == len(body), "bytes are left over in the manifest")


def main():
    store = sys.argv[1]
    with open(f"{store}/format") as file:
        description = json.load(file)
    check(description["format"] == "gpuckpt store" and description["version"] == 3, "format")
    key = bytes.fromhex(description["names"])
    check(description["check"] == sum_of(f"3{description['id']}{description['names']}".encode()).hex(), "format: check")
    if len(sys.argv) == 4:
        extract(store, key, sys.argv[2], sys.argv[3])
        return
    for name in sorted(os.listdir(f"{store}/snapshots")):
        if name.endswith(".manifest"):
            meta, _ = read_manifest(f"{store}/snapshots/{name}")
            print(meta["id"], meta["time"], meta["job"] or "-", meta["sizes"]["logical_bytes"])


if __name__ == "__main__":
    main()
