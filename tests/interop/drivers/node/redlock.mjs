// Drives redlock, also known as node-redlock.
import Redlock from "redlock";
import { serve } from "./line.mjs";

await serve(Redlock, "redlock");
