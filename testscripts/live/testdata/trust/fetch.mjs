// fetch.mjs AS HOST...: as client says, by the fetch of node, deno and bun.
import process from "node:process";
const [as, ...hosts] = process.argv.slice(2);
for (const h of hosts) {
  try {
    const r = await fetch(`https://${h}/seen/${as}`, {headers: {authorization: "Bearer " + process.env.MINE}});
    await r.text();
    console.log(h, r.ok ? "ok -" : "failed " + r.status);
  } catch (e) {
    console.log(h, "failed", String(e), String(e.cause ?? e.code ?? ""));
  }
}
