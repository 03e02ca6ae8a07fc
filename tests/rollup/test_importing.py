"""Files with blocks: calldata, answers of an Ethereum endpoint, tables of public datasets; and broken ones."""

import contextlib
import csv
import gzip
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.optional import first_often
from support.rollup_blocks import EXCHANGE, recorded, recorded_bytes, submit, wrapped
from support.rollup_stores import ADDRESS, event, made_call, made_data, numbers_of

import loopring_lab as lab
from loopring_lab.origin import Source
from loopring_lab.rollup import Store, importing
from loopring_lab.sources.connect import BUNDLED

LabError = lab.LabError
SUBMITTED = "0xcc86d9ed29ebae540f9d25a4976d4da36ea4161b854b8ecf18f491cf6b0feb5c"
REGISTERED = "0x678eb1f52e3e76c52c1143d5699af1d8a5e03743e8840223ccb27aabf3c44c0a"
DEPOSIT = "0x" + "ab" * 100  # a call of the exchange that submits no block


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def transaction(*numbers, **known):
    """Return a transaction as eth_getTransactionByHash does."""
    return {
        "blockNumber": hex(11_000_000 + numbers[0]),
        "hash": f"0x{numbers[0]:064x}",
        "chainId": "0x1",
        "from": "0x" + "22" * 20,
        "to": "0x" + "33" * 20,
        "input": "0x" + made_call(*numbers).hex(),
        "value": "0x0",
    } | known


def log_of(number, **known):
    """Return the event of a block as eth_getLogs does."""
    one = event(number)
    return {
        "address": "0x" + EXCHANGE.hex().upper(),
        "topics": [SUBMITTED, f"0x{number:064x}"],
        "removed": False,
        "data": "0x" + (one.merkle_root + one.public_data_hash).hex(),
        "logIndex": hex(one.log_index),
        "blockNumber": hex(one.l1_block),
        "transactionHash": one.transaction_hash,
    } | known


def write_table(path, rows):
    """Write rows as the ending of the path says."""
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
        return path
    with gzip.open(path, "wt") if path.name.endswith(".gz") else path.open("w") as file:
        if name.endswith(".csv"):
            out = csv.DictWriter(file, list(rows[0]))
            out.writeheader()
            out.writerows(rows)
        elif name.endswith(".jsonl"):
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            file.write(json.dumps(rows, indent=1))
    return path


def submitted(store):
    return [
        (raw.l1_block, raw.transaction_hash, raw.place, raw.data)
        for raw in store.blocks().raw
    ]


def expected(*calls):
    return [
        (11_000_000 + call[0], f"0x{call[0]:064x}", place, made_data(number))
        for call in calls
        for place, number in enumerate(call)
    ]


def test_the_recorded_block_is_imported_once_and_only_once(store):
    names = ("data.hex", "calldata_packed.hex", "calldata_plain.hex")
    added = [store.import_files(recorded() / name).attrs["added"] for name in names * 2]
    assert added == [1, 0, 0, 0, 0, 0]
    [raw] = store.blocks().raw
    assert raw.data == recorded_bytes("data.hex")
    assert raw.form == "53228430"
    assert store.source == f"exchange {ADDRESS} on chain 1"
    assert store.file.database.source() == Source(store.source, False, ADDRESS, 1)


@pytest.mark.parametrize(
    "name", ["a.json", "a.jsonl", "a.jsonl.gz", "a.csv", "a.csv.gz", "a.parquet"]
)
def test_tables_and_answers_give_blocks_with_their_transactions(store, tmp_path, name):
    rows = [
        transaction(1),
        transaction(4, input=DEPOSIT),
        transaction(2, 3),
        transaction(5, input="0x"),
    ]
    report = store.import_files(write_table(tmp_path / name, rows))
    assert submitted(store) == expected((1,), (2, 3))
    assert (report.attrs["added"], report.attrs["skipped"]) == (3, 2)


def test_a_hash_in_bytes_may_begin_with_those_of_0x(store, tmp_path):
    digest = b"0x" + bytes(30)
    row = {"hash": digest, "block_number": 11_000_001, "input": made_call(1)}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    store.import_files(tmp_path / "a.parquet")
    [raw] = store.blocks().raw
    # The letters 0 and x are 30 and 78.
    assert raw.transaction_hash == "0x3078" + 60 * "0"


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_columns_of_public_datasets_are_read_beside_others(store, tmp_path, suffix):
    rows = [
        {
            "hash": f"0x{number:064x}",
            "block_number": 11_000_000 + number,
            "input": "0x" + made_call(number).hex(),
            "note": "a, b",
        }
        for number in (1, 2)
    ]
    store.import_files(write_table(tmp_path / f"export{suffix}", rows))
    assert submitted(store) == expected((1,), (2,))


FLAGS = [
    (".csv", "receipt_status", 0, 1),
    (".parquet", "status", 0.0, 1.0),
    (".jsonl", "receiptStatus", "0x0", "0x1"),
    (".csv", "txreceipt_status", "0", "1"),
    (".parquet", "isError", "1", "0"),
    (".jsonl", "success", False, True),
    (".csv", "status", " FALSE ", " TRUE "),
    (".csv", "success", "0.0", "1.0"),
    (".csv", "receipt.status", "0", "1"),
    (".parquet", "TX_SUCCEEDED", False, True),
    (".jsonl", "tx_failed", True, False),
    (".csv", "Tx Reverted", "1", "0"),
]


@pytest.mark.parametrize(("suffix", "name", "failed", "fine"), first_often(4, FLAGS))
def test_transactions_that_failed_submit_no_blocks(
    store, tmp_path, suffix, name, failed, fine
):
    flags = [fine, failed, fine, None]
    rows = [transaction(at, **{name: flag}) for at, flag in enumerate(flags, 1)]
    report = store.import_files(write_table(tmp_path / f"export{suffix}", rows))
    assert submitted(store) == expected((1,), (3,), (4,))
    assert (report.attrs["added"], report.attrs["skipped"]) == (3, 1)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
@pytest.mark.parametrize(
    ("names", "values"),
    [
        (("receipt_status", "receiptStatus"), ("0", "1")),
        (("block_number",), (5,)),
    ],
)
def test_two_columns_of_one_name_are_refused(store, tmp_path, suffix, names, values):
    row = transaction(1) | dict(zip(names, values, strict=True))
    with pytest.raises(LabError, match=f"expected one column of a name.*{names[-1]}"):
        store.import_files(write_table(tmp_path / f"a{suffix}", [row]))


@pytest.mark.parametrize(
    "text",
    [
        '"input"," status"\n{},0\n{},1\n',
        "input, status\r\n{},0\r\n{},1\r\n",
    ],
)
def test_a_column_is_found_however_the_line_of_names_is_written(store, tmp_path, text):
    contents = [transaction(number)["input"] for number in (1, 2)]
    (tmp_path / "a.csv").write_bytes(text.format(*contents).encode())
    report = store.import_files(tmp_path / "a.csv")
    assert (report.attrs["added"], report.attrs["skipped"]) == (1, 1)
    assert store.blocks().raw[0].data == made_data(2)


def test_what_arrow_cannot_make_python_of_is_refused_with_its_file(store, tmp_path):
    days = pa.array([2**31 - 1], pa.date32())
    table = pa.Table.from_pylist([transaction(1)]).append_column("status", days)
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(LabError, match=r"a\.parquet, after row 0: expected a table"):
        store.import_files(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("name", "word"),
    first_often(
        3,
        [
            ("success", "f"),
            ("receipt_status", "0x00"),
            ("status", "execution reverted"),
            ("success", "n"),
            ("receipt_status", "2"),
            ("error", "Reverted"),
            ("success", "OK"),
            ("isError", "-1"),
        ],
    ),
)
def test_what_is_neither_yes_nor_no_is_refused_with_its_row(
    store, tmp_path, name, word
):
    rows = [transaction(1, **{name: ""}), transaction(2, **{name: word})]
    column = name.replace("_", "").lower()
    said = f"a.csv, row 2, {column}: expected 1 or 0, or true or false"
    with pytest.raises(LabError, match=said):
        store.import_files(write_table(tmp_path / "a.csv", rows))
    assert submitted(store) == expected((1,))


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_receipt_within_a_transaction_is_not_passed_over(store, tmp_path, suffix):
    rows = [transaction(1, receipt={"status": "0x0"})]
    with pytest.raises(LabError, match="receipt: expected 1 or 0, .*status"):
        store.import_files(write_table(tmp_path / f"a{suffix}", rows))


def test_the_sample_beside_other_blocks_is_not_the_name_of_all(store, tmp_path):
    listing = BUNDLED["sample"] / "tokens.json"
    store.import_files(BUNDLED["sample"], tokens=listing)
    assert store.source.startswith("one real block of Loopring Exchange v3.6, Ether")
    client = lab.connect(blocks=store)
    (tmp_path / "two.bin").write_bytes(made_call(1, 2))
    report = store.import_files(tmp_path / "two.bin")
    names = {store.source, report.attrs["source"], client.source}
    assert names == {f"exchange {ADDRESS} on chain 1"}
    assert "real block" not in repr(client)
    together = Store(tmp_path / "together")
    together.import_files([BUNDLED["sample"], tmp_path / "two.bin"], tokens=listing)
    assert together.source == f"exchange {ADDRESS} on chain 1"
    assert store.blocks().headers().attrs["source"] == store.source


def in_parquet(number, kind):
    return pa.table(
        {
            "block_number": pa.array([number], kind),
            "input": ["0x" + made_call(1).hex()],
        }
    )


@pytest.mark.parametrize(
    "number",
    [
        pa.scalar(11_000_001, pa.int64()),
        pa.scalar(11_000_001, pa.uint32()),
        pa.scalar(11_000_001.0, pa.float64()),
        pa.scalar(Decimal(11_000_001), pa.decimal128(38, 0)),
        pa.scalar(Decimal("11000001.00"), pa.decimal128(20, 2)),
        pa.scalar("11000001", pa.string()),
        pa.scalar("0xa7d8c1", pa.string()),
    ],
    ids=lambda number: str(number.type),
)
def test_whole_block_numbers_are_read_whatever_their_type(store, tmp_path, number):
    pq.write_table(in_parquet(number.as_py(), number.type), tmp_path / "a.parquet")
    store.import_files(tmp_path / "a.parquet")
    assert [raw.l1_block for raw in store.blocks().raw] == [11_000_001]


@pytest.mark.parametrize(
    "number",
    [
        pa.scalar(11_000_001.5, pa.float64()),
        pa.scalar(float("nan"), pa.float64()),
        pa.scalar(2.0**60, pa.float64()),
        pa.scalar(Decimal("11000001.01"), pa.decimal128(20, 2)),
        pa.scalar(Decimal(1 << 63), pa.decimal128(38, 0)),
        pa.scalar(-1, pa.int64()),
        pa.scalar("1.13640E+07", pa.string()),
        pa.scalar("11e6", pa.string()),
        pa.scalar("11,000,001", pa.string()),
    ],
    ids=lambda number: f"{number}-{number.type}",
)
def test_other_numbers_of_blocks_are_refused_with_their_row(store, tmp_path, number):
    pq.write_table(in_parquet(number.as_py(), number.type), tmp_path / "a.parquet")
    said = r"a\.parquet, row 1, block number: expected a whole number"
    with pytest.raises(LabError, match=said):
        store.import_files(tmp_path / "a.parquet")


@pytest.mark.parametrize("text", ["1.13640E+07", "1136e4"])
def test_a_number_with_an_exponent_is_refused_in_text_files(store, tmp_path, text):
    row = {"block_number": "N", "input": "0x" + made_call(1).hex()}
    (tmp_path / "a.json").write_text(json.dumps(row).replace('"N"', text))
    write_table(tmp_path / "a.csv", [row | {"block_number": text}])
    for name in ("a.json", "a.csv"):
        with pytest.raises(LabError, match="block number: expected a whole number"):
            store.import_files(tmp_path / name)


@pytest.mark.parametrize("number", [(1 << 59) + 1, (1 << 63) - 1, 92_233_720_368_547])
def test_an_event_whose_block_has_no_trade_ids_is_refused(store, tmp_path, number):
    """Ids are the number times 100,000: that of block 1 + 2^59 would be that of block 1."""
    topics = [SUBMITTED, f"0x{number:064x}"]
    write_table(tmp_path / "logs.json", [log_of(1, topics=topics)])
    with pytest.raises(LabError, match="blockIdx: expected a whole number"):
        store.import_files(tmp_path / "logs.json")


def test_answers_of_json_rpc_are_unpacked(store, tmp_path):
    one, two = ({"jsonrpc": "2.0", "result": transaction(n)} for n in (1, 2))
    logs = {"id": 1, "result": [log_of(1), log_of(2)]}
    for name, answer in (("1", one), ("batch", [one, two]), ("logs", logs)):
        (tmp_path / f"{name}.json").write_text(json.dumps(answer))
    store.import_files([tmp_path / f"{name}.json" for name in ("1", "batch", "logs")])
    assert submitted(store) == expected((1,), (2,))
    assert numbers_of(store) == [1, 2]
    said = r"wrong\.json.*: expected a transaction or an event"
    for wrong in ({"id": 1, "result": None}, {"error": {"code": -3}}, [[1]], 7):
        (tmp_path / "wrong.json").write_text(json.dumps(wrong))
        with pytest.raises(lab.errors.UnexpectedAnswer, match=said):
            store.import_files(tmp_path / "wrong.json")


@pytest.mark.parametrize("form", ["hex", "0x", "bytes", "gzip"])
def test_calldata_and_block_data_are_told_apart(store, tmp_path, form):
    contents = [
        made_data(1),
        made_call(2),
        made_call(3, compress=False),
        submit([made_data(4)]),
        wrapped(submit([made_data(5)]), selector="01020304"),
    ]
    prefix = "0x" if form == "0x" else ""
    ending = {"bytes": "bin", "gzip": "bin.gz"}.get(form, "hex")
    for number, content in enumerate(contents):
        text = f"{prefix}{content.hex()}\n".encode()
        written = {"bytes": content, "gzip": gzip.compress(content)}.get(form, text)
        (tmp_path / f"{number}.{ending}").write_bytes(written)
    store.import_files(tmp_path)
    assert {raw.data for raw in store.blocks().raw} == set(map(made_data, range(1, 6)))


def test_a_folder_is_read_in_the_order_of_names(store, tmp_path):
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "c.hex").write_text(made_call(3).hex())
    (folder / "a.bin").write_bytes(made_call(1))
    write_table(folder / "b.csv.gz", [transaction(2)])
    (folder / "notes.md").write_text("not read")
    (folder / "source.json").write_text('{"name": "my export", "synthetic": true}')
    (folder / "tokens.json").write_text(
        '[{"symbol": "ETH", "tokenId": 0, "decimals": 18}]'
    )
    store.import_files(folder, first_block=1, tokens=folder / "tokens.json")
    assert [raw.data for raw in store.blocks().raw] == [
        made_data(number) for number in (1, 2, 3)
    ]
    assert (store.source, store.report().attrs["synthetic"]) == ("my export", True)
    assert store.tokens()["decimals"].tolist() == [18]


@pytest.mark.parametrize("numbers", [(2, 1, 3), (1, 3)])
def test_no_block_is_numbered_that_does_not_follow_the_one_before(
    store, tmp_path, numbers
):
    rows = [transaction(number) for number in numbers]
    table = write_table(tmp_path / "a.csv", rows)
    with pytest.raises(LabError, match=r"a\.csv, row 2: does not begin where"):
        store.import_files(table, first_block=numbers[0])
    assert [raw.block_id for raw in store.blocks().raw] == [numbers[0]]
    assert store.import_files(table).attrs["added"] == len(numbers) - 1


def test_events_number_blocks_and_name_tokens_and_others_are_skipped(store, tmp_path):
    token = log_of(
        1, topics=[REGISTERED], data="0x" + "00" * 12 + "cd" * 20 + f"{7:064x}"
    )
    other = log_of(1, topics=["0x" + "11" * 32])
    foreign = log_of(9, address="0x" + "44" * 20)
    undone = log_of(8, removed=True)
    write_table(
        tmp_path / "logs.json", [log_of(1), log_of(2), token, other, foreign, undone]
    )
    write_table(
        tmp_path / "calls.jsonl", [transaction(1), transaction(2), transaction(3)]
    )
    report = store.import_files([tmp_path / "logs.json", tmp_path / "calls.jsonl"])
    assert report.attrs["skipped"] == 3
    assert store.file.index().events.to_pylist() == [
        event(1)._asdict(),
        event(2)._asdict(),
    ]
    assert store.file.contracts() == {7: "0x" + "cd" * 20}
    assert numbers_of(store) == [1, 2, 3]
    assert store.file.scanned() == []


@pytest.mark.parametrize("order", [("calls", "logs"), ("logs", "calls")])
def test_a_block_is_of_the_transaction_of_its_event(store, tmp_path, order):
    """The call of another transaction with the same block failed, which its JSON does not say."""
    failed = transaction(1, hash=f"0x{77:064x}", blockNumber=hex(10_999_990))
    write_table(tmp_path / "calls.json", [failed, transaction(2, blockNumber=None)])
    write_table(tmp_path / "logs.json", [log_of(1), log_of(2)])
    for name in order:
        store.import_files(tmp_path / f"{name}.json")
    headers = store.blocks().headers()
    assert headers["l1_block"].tolist() == [11_000_001, 11_000_002]
    assert headers["transaction_hash"].tolist() == [f"0x{1:064x}", f"0x{2:064x}"]


def test_events_are_read_as_explorers_write_them(store, tmp_path):
    log = log_of(1)
    padded = log | {"topics": [*log["topics"], None, None], "logIndex": "0x"}
    answer = {"status": "1", "message": "OK", "result": [padded]}
    write_table(tmp_path / "logs.json", [answer])
    store.import_files(tmp_path / "logs.json")
    assert store.file.index().events.to_pylist() == [event(1, log_index=0)._asdict()]


def test_a_source_of_another_exchange_is_refused(tmp_path):
    (tmp_path / "a.bin").write_bytes(made_call(1))
    (tmp_path / "source.json").write_text(
        json.dumps({"name": "a", "exchange": "0x" + "66" * 20})
    )
    with pytest.raises(LabError, match=r"but source\.json says"):
        Store(tmp_path / "other").import_files(tmp_path / "a.bin")


BROKEN: dict[str, tuple[str, bytes, str]] = {
    "a broken line": (
        "a.hex",
        made_call(2).hex().encode() + b"\nzz",
        "a.hex, line 2: expected hex text",
    ),
    "a bad slot": (
        "a.bin",
        wrapped(submit([made_data(2)[:98] + b"\x63" + made_data(2)[99:]])),
        "a.bin: block 0, slot 0",
    ),
    "a cut submission": (
        "a.jsonl",
        json.dumps(transaction(2, input=transaction(2)["input"][:-400])).encode(),
        "a.json",
    ),
    "no hash": (
        "a.json",
        json.dumps(transaction(2, hash="0x12")).encode(),
        "a.json, hash: expected 32 bytes",
    ),
    "a topic less": (
        "a.json",
        json.dumps(log_of(2, topics=[SUBMITTED])).encode(),
        "a.json, topics: expected 2",
    ),
    "no JSON": ("a.json", b'{"input": ', "a.json: expected JSON"),
    "no column": ("a.csv", b"hash,number\n1,2\n", "a.csv: expected a column input"),
    "a short row": (
        "a.csv",
        b"input,status\n0x00\n",
        "a.csv, after row 1: expected a table",
    ),
    "a long row": (
        "a.csv",
        b"input,status\n0x00,1,2\n",
        "a.csv, after row 1: expected a table",
    ),
    "a quote that nothing closes": (
        "a.csv",
        b'input,note\n0x00,"odd\n0x00,plain\n0x00,plain\n',
        "a.csv, after row 0: expected a table",
    ),
    "old line ends": (
        "a.csv",
        b"input,status\r0x00,1\r",
        "a.csv, after row 0: expected a table",
    ),
    "no Parquet": (
        "a.parquet",
        b"PAR1" + bytes(400) + b"PAR1",
        "a.parquet, after row 0: expected a table",
    ),
    "a gzip bomb": (
        "a.json.gz",
        gzip.compress(b"[") + gzip.compress(b" " * (1 << 20)) * 64,
        "a.json.gz: expected",
    ),
    "no known ending": ("a.xlsx", b"PK", "a.xlsx: expected a file that ends in .hex"),
    "half a gzip": ("a.csv.gz", gzip.compress(b"hash,input\n" * 9)[:-9], "a.csv.gz"),
}


@pytest.mark.parametrize("case", first_often(3, BROKEN))
def test_a_broken_file_is_named_and_files_before_it_are_imported(store, tmp_path, case):
    name, content, where = BROKEN[case]
    (tmp_path / "whole.bin").write_bytes(made_call(1))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LabError) as caught:
        store.import_files([tmp_path / "whole.bin", tmp_path / name])
    assert where in str(caught.value)
    # A bad slot is found when the batch is committed, which refuses all of it.
    if case != "a bad slot":
        assert store.blocks().raw[0].data == made_data(1)


def test_paths_that_are_not_there_are_named(store, tmp_path):
    (tmp_path / "empty").mkdir()
    for path, problem in {
        "nothing": "no such file",
        "empty": "no file ends in .hex",
    }.items():
        with pytest.raises(LabError, match=problem):
            store.import_files(tmp_path / path)
    stated = tmp_path / "empty" / "source.json"
    stated.write_text('{"name": "a world"}')
    said = "empty: no file besides source.json. Give files with blocks"
    for paths in (tmp_path / "empty", [stated]):
        with pytest.raises(LabError, match=said):
            store.import_files(paths)
    with pytest.raises(LabError, match=said):
        lab.connect(blocks=tmp_path / "empty")
    with pytest.raises(LabError, match=r"tokens\.json: .* no such file"):
        store.import_files([], tokens=tmp_path / "tokens.json")
    (tmp_path / "tokens.json").write_text(
        '[{"symbol": "ETH", "tokenId": 0, "decimals": 18}]'
    )
    with pytest.raises(LabError, match="no blocks here yet"):
        store.import_files([], tokens=tmp_path / "tokens.json")


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=8)
        | st.just(SUBMITTED),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["input", "hash", "topics", "data", "address", "result", "removed"]
                ),
                inner,
            )
        ),
        max_leaves=8,
    )
)
def test_any_json_is_a_lab_error_or_read(tmp_path, value):
    (tmp_path / "a.json").write_text(json.dumps(value))
    with contextlib.suppress(LabError):
        Store(tmp_path / "store").import_files(tmp_path / "a.json")


def test_rows_of_csv_may_have_nearly_4_mib(tmp_path):
    digits = [1_800_000, 3_000_000]
    file = tmp_path / "calls.csv"
    lines = ["hash,block_number,input"]
    lines += [
        f"0x{n:064x},{n},0x{'ab' * (count // 2)}" for n, count in enumerate(digits)
    ]
    file.write_text("\n".join(lines))
    sizes = [len(call.content) for call in importing._items(file)]
    assert sizes == [count // 2 for count in digits]


def test_tokens_alone_make_no_store(tmp_path):
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([{"symbol": "ETH", "tokenId": 0, "decimals": 18}]))
    store = Store(tmp_path / "store.duckdb")
    with pytest.raises(LabError, match="no blocks here yet"):
        store.import_files([], tokens=tokens)
    assert list(tmp_path.iterdir()) == [tokens]
