"""Plain decoding over two pipeline stages, as CPU processes: the same tokens as on one."""

PROMPTS = [[5, 6, 7, 8], [9, 10, 11], [40, 52, 60, 70, 80]]
STAGES = {"pp_size": 2, "env": {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}}


def answers(server) -> list[list[int]]:
    requests = [{"input_ids": prompt, "max_new_tokens": 16} for prompt in PROMPTS]
    return [answer["output_ids"] for answer in server.generate_concurrently(requests)]


def test_two_stages_of_a_tied_model_equal_one(shared_servers, tiny_pair):
    target = tiny_pair(tie_word_embeddings=True).target
    expected = answers(shared_servers.get(target, dtype="float32"))
    assert answers(shared_servers.get(target, dtype="float32", **STAGES)) == expected
