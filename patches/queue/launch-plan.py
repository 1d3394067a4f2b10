"""Description: Print the plan of a launch with --dry-run, and refuse what cannot work before weights are loaded
  A launch that does not fit its GPUs, or whose GPUs cannot reach each other, fails after minutes of loading or hangs at
  its first collective. A plugin can add no field to the arguments, and nothing runs between their resolution and the
  start of the model processes.
Origin: vendor
Forwarded: not-needed, the plan is this fork's
Touches: sglang/srt/arg_groups/fields/serving.py :: Serving
Touches: sglang/launch_server.py :: run_server
Applies-To: ==0.5.23
Remove-When: upstream plans a launch before it loads weights
Last-Update: 2026-11-30
"""

from patches.transforms import AddField, Insert, after, call

EDITS = (
    AddField(
        "sglang/srt/arg_groups/fields/serving.py",
        "Serving",
        "dry_run: A[\n"
        "    Optional[str],\n"
        "    Arg(\n"
        '        help="Print the plan of this launch (layout, memory per GPU, backends, CUDA graphs) and end: "\n'
        '        "status 0, or 1 where something stands in the way. No weight is loaded and no GPU is needed. With "\n'
        '        "FACTS.json, the output of python -m sglang.cuda_doctor --json, for the machine that it is from.",\n'
        '        nargs="?",\n'
        '        const="here",\n'
        "    ),\n"
        "] = None\n",
    ),
    Insert(
        "sglang/launch_server.py",
        "run_server",
        "plan_launch(server_args)",
        module="sglang.launch_plan.launch",
        name="plan_launch",
        where=after(call("server_args.resolve_once")),
    ),
)
